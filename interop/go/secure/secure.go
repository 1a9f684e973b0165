// Package secure makes TLS of the flags that the peers have in common.
package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"os"
)

// Files are what the flags name.
type Files struct {
	ca, cert, key *string
}

// Flags declares the flags -ca, -cert and -key. What the authorities of -ca have issued is trusted: of a server, or, by
// a server, of its clients, who must then have a certificate.
func Flags() Files {
	return Files{
		ca:   flag.String("ca", "", "PEM file of the authorities that the other end's certificate must be of"),
		cert: flag.String("cert", "", "PEM file of the certificate to show"),
		key:  flag.String("key", "", "PEM file of its key"),
	}
}

// Client is what a client connects with; nil: in clear text.
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

// Server is what a server listens with; nil: in clear text.
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
