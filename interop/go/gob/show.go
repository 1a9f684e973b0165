package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// show prints a value as JSON, with nothing omitted, in the format of the Rust program.
func show(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Time:
		return quoted(value.Format(time.RFC3339Nano))
	case ByGob:
		b, _ := value.GobEncode()
		return quoted(base64.StdEncoding.EncodeToString(b))
	case ByBinary:
		b, _ := value.MarshalBinary()
		return quoted(base64.StdEncoding.EncodeToString(b))
	case []byte:
		return quoted(base64.StdEncoding.EncodeToString(value))
	}
	switch v.Kind() {
	case reflect.Complex64, reflect.Complex128:
		return fmt.Sprintf("[%v,%v]", real(v.Complex()), imag(v.Complex()))
	case reflect.Float32, reflect.Float64:
		return fmt.Sprint(v.Float())
	case reflect.String:
		return quoted(v.String())
	case reflect.Slice, reflect.Array:
		var parts []string
		for i := range v.Len() {
			parts = append(parts, show(v.Index(i)))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case reflect.Map:
		var parts []string
		for pairs := v.MapRange(); pairs.Next(); {
			key := show(pairs.Key())
			if !strings.HasPrefix(key, `"`) {
				key = quoted(key)
			}
			parts = append(parts, key+":"+show(pairs.Value()))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			if of := v.Type().Field(i); of.IsExported() && of.Type.Kind() != reflect.Chan {
				parts = append(parts, quoted(of.Name)+":"+field(v.Field(i)))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "null"
		}
		return show(v.Elem())
	}
	return fmt.Sprint(v.Interface())
}

// field prints a field, which may have been omitted.
func field(v reflect.Value) string {
	of, isPointer := v.Type(), v.Kind() == reflect.Pointer
	for v.Kind() == reflect.Pointer {
		of = of.Elem()
		v = v.Elem()
	}
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	opaque := of == reflect.TypeFor[time.Time]() || of == reflect.TypeFor[ByGob]() || of == reflect.TypeFor[ByBinary]()
	if opaque && (!v.IsValid() || v.IsZero() && !isPointer) {
		return "null"
	}
	if v.IsValid() {
		return show(v)
	}
	switch of.Kind() {
	case reflect.Struct, reflect.Array, reflect.Interface:
		return "null"
	}
	return show(reflect.Zero(of))
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}
