package option

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS says how a server and we authenticate to each other, such as by a hospital's own certificate authority.
type TLS struct {
	// A PEM file with the certificate authorities to trust for the server. Default: those of the system.
	CA string `json:"ca,omitempty"`

	// A PEM file with a client certificate. It is read again for each connection. Default: none.
	ClientCertificate string `json:"client_certificate,omitempty"`

	// The PEM file with its key. Required with the certificate.
	ClientKey string `json:"client_key,omitempty"`
}

var (
	errNoCertificates = errors.New("no certificate found") // in a file of certificate authorities
	errHalfClientTLS  = errors.New("tls_client needs both a certificate and its key")
)

// Subdirectives are those that set it.
func (t *TLS) Subdirectives() Block {
	return Block{
		"tls_ca":     Word(&t.CA, nil),
		"tls_client": Two(&t.ClientCertificate, &t.ClientKey),
	}
}

// Authorities returns the certificate authorities' PEM text.
func (t *TLS) Authorities() ([]byte, error) { return t.files().Authorities() }

// Config is nil if nothing is set.
func (t *TLS) Config(authorities []byte) (*tls.Config, error) {
	switch {
	case *t == (TLS{}):
		return nil, nil
	case (t.ClientCertificate == "") != (t.ClientKey == ""):
		return nil, errHalfClientTLS
	}
	return t.files().Config(authorities)
}

func (t *TLS) files() TLSFiles {
	return TLSFiles{t.CA, t.ClientCertificate, t.ClientKey, "tls_ca", "tls_client"}
}

// TLSFiles are files by which a server and we authenticate to each other, and the options that name them.
type TLSFiles struct {
	CA, Certificate, Key string // PEM files; none is needed
	CAOption, PairOption string // for messages
}

// Authorities returns the certificate authorities' PEM text.
func (f TLSFiles) Authorities() ([]byte, error) {
	if f.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.CAOption, err)
	}
	return text, nil
}

// Config reads the client certificate, to see whether it can be used, and again for each connection.
func (f TLSFiles) Config(authorities []byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s: %s: %w", f.CAOption, f.CA, errNoCertificates)
		}
	}
	if f.Certificate == "" {
		return config, nil
	}
	if _, err := f.clientPair(nil); err != nil {
		return nil, fmt.Errorf("%s: %w", f.PairOption, err)
	}
	config.GetClientCertificate = f.clientPair
	return config, nil
}

func (f TLSFiles) clientPair(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	return &pair, err
}

// ClientConfig returns the settings of an OAuth or OpenID Connect client; nil if nothing is set.
func (t *TLS) ClientConfig() (*tls.Config, error) {
	authorities, err := t.Authorities()
	if err != nil {
		return nil, err
	}
	return t.Config(authorities)
}
