package caddymodule

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// TLS is how another server proves to us who it is, and we to it, where the usual is not
// enough: hospitals have authorities of their own.
type TLS struct {
	// A file with the certificates, in PEM, of the authorities that the server's
	// certificate may be from. Default: those that the system trusts.
	CA string `json:"ca,omitempty"`

	// A file with a client certificate, in PEM, that the server asks for; it is
	// read anew with each connection. Default: none.
	ClientCertificate string `json:"client_certificate,omitempty"`

	// The file with its key, in PEM. Required with the certificate.
	ClientKey string `json:"client_key,omitempty"`
}

var (
	errNoCertificates = errors.New("no certificate found")
	errHalfClientTLS  = errors.New("tls_client needs both a certificate and its key")
)

// subdirectives are the options of these.
func (t *TLS) subdirectives() subdirectives {
	return subdirectives{
		"tls_ca":     word(&t.CA, nil),
		"tls_client": two(&t.ClientCertificate, &t.ClientKey),
	}
}

// authorities are the certificates in PEM, or nil.
func (t *TLS) authorities() ([]byte, error) {
	if t.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("tls_ca: %w", err)
	}
	return text, nil
}

// config is nil where all is as usual.
func (t *TLS) config(authorities []byte) (*tls.Config, error) {
	if *t == (TLS{}) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("tls_ca: %s: %w", t.CA, errNoCertificates)
		}
	}
	if t.ClientCertificate == "" && t.ClientKey == "" {
		return config, nil
	}
	if t.ClientCertificate == "" || t.ClientKey == "" {
		return nil, errHalfClientTLS
	}
	if _, err := t.clientPair(nil); err != nil {
		return nil, fmt.Errorf("tls_client: %w", err)
	}
	config.GetClientCertificate = t.clientPair
	return config, nil
}

func (t *TLS) clientPair(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.ClientCertificate, t.ClientKey)
	return &pair, err
}

// transport makes the requests of an OAuth or OpenID Connect client; it is nil where all
// is as usual.
func (t *TLS) transport() (http.RoundTripper, error) {
	authorities, err := t.authorities()
	if err != nil {
		return nil, err
	}
	config, err := t.config(authorities)
	if config == nil || err != nil {
		return nil, err
	}
	return upstream.Transport(config), nil
}
