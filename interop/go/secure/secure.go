// Package secure creates TLS configurations from the common flags of the peers.
package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"os"
)

// Files are the files named by the flags.
type Files struct {
	ca, cert, key *string
}

// Flags declares the flags -ca, -cert and -key. Certificates of the authorities in -ca are trusted: those of a server
// or, by a server, those of its clients, which must then have one.
func Flags() Files {
	return Files{
		ca:   flag.String("ca", "", "PEM file of the authorities that the other end's certificate must be of"),
		cert: flag.String("cert", "", "PEM file of the certificate to show"),
		key:  flag.String("key", "", "PEM file of its key"),
	}
}

// Client is the TLS configuration of a client; nil: no TLS.
func (f Files) Client() (*tls.Config, error) {
	if *f.ca == "" {
		return nil, nil
	}
	roots, err := authorities(*f.ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: roots}
	if *f.cert != "" {
		pair, err := tls.LoadX509KeyPair(*f.cert, *f.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Server is the TLS configuration of a server; nil: no TLS.
func (f Files) Server() (*tls.Config, error) {
	if *f.cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(*f.cert, *f.key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	if *f.ca != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		if config.ClientCAs, err = authorities(*f.ca); err != nil {
			return nil, err
		}
	}
	return config, nil
}

func authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + path)
	}
	return pool, nil
}
