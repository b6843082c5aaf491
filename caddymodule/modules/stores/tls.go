package stores

import (
	"cmp"
	"crypto/tls"
	"errors"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// TLS says how a store's server and we authenticate to each other. Without any option, the server's certificate must
// be one that the system trusts.
type TLS struct {
	// A PEM file with the certificate authorities to trust for the server. Default: those of the system.
	CA string `json:"ca,omitempty"`

	// A PEM file with a client certificate. It is read again for each connection. Default: none.
	Certificate string `json:"certificate,omitempty"`

	// The PEM file with its key. Required with the certificate.
	Key string `json:"key,omitempty"`

	// The name in the server's certificate. Default: the host.
	ServerName string `json:"server_name,omitempty"`
}

var errHalfStoreTLS = errors.New("tls needs both a certificate and its key, or neither")

// ParseTLS reads a tls block, which may be empty.
func ParseTLS(to **TLS) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		t := new(TLS)
		if *to = t; d.NextArg() {
			return d.ArgErr()
		}
		err := option.Block{
			"ca":          option.Word(&t.CA, nil),
			"certificate": option.Word(&t.Certificate, nil),
			"key":         option.Word(&t.Key, nil),
			"server_name": option.Word(&t.ServerName, nil),
		}.Parse(d)
		return cmp.Or(err, option.WithLine(d, t.check()))
	}
}

func (t *TLS) check() error {
	if (t.Certificate == "") != (t.Key == "") {
		return errHalfStoreTLS
	}
	return nil
}

// OrNone is a copy, or one without options if there is no block.
func (t *TLS) OrNone() TLS {
	if t == nil {
		return TLS{}
	}
	return *t
}

// Authorities returns the certificate authorities' PEM text.
func (t *TLS) Authorities() ([]byte, error) { return t.files().Authorities() }

// Config is nil without a block.
func (t *TLS) Config(authorities []byte) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	config, err := t.files().Config(authorities)
	if err == nil {
		config.ServerName = t.ServerName
	}
	return config, err
}

func (t *TLS) files() option.TLSFiles {
	set := t.OrNone()
	return option.TLSFiles{CA: set.CA, Certificate: set.Certificate, Key: set.Key, CAOption: "tls: ca", PairOption: "tls"}
}
