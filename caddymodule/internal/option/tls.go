package option

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
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
func (t *TLS) Authorities() ([]byte, error) {
	if t.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("tls_ca: %w", err)
	}
	return text, nil
}

// Config is nil if nothing is set. It reads the client certificate, to see whether it can be used, and again for each connection.
func (t *TLS) Config(authorities []byte) (*tls.Config, error) {
	switch {
	case *t == (TLS{}):
		return nil, nil
	case (t.ClientCertificate == "") != (t.ClientKey == ""):
		return nil, errHalfClientTLS
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("tls_ca: %s: %w", t.CA, errNoCertificates)
		}
	}
	if t.ClientCertificate == "" {
		return config, nil
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

// ClientConfig returns the settings of an OAuth or OpenID Connect client; nil if nothing is set.
func (t *TLS) ClientConfig() (*tls.Config, error) {
	authorities, err := t.Authorities()
	if err != nil {
		return nil, err
	}
	return t.Config(authorities)
}

var anyPlaceholder = regexp.MustCompile(`\{[^{}]+\}`)

// connectionValue escapes a value in keyword=value pairs as libpq reads them, between quotes or without.
var connectionValue = strings.NewReplacer(
	`\`, `\\`, `'`, `\'`, " ", `\ `, "\t", "\\\t", "\n", "\\\n", "\r", "\\\r", "\v", "\\\v", "\f", "\\\f",
)

// ResolveConnection is [ResolveSecret] of a URL, or of keyword=value pairs as libpq reads them, that says where a server is and
// how to authenticate there. What a placeholder holds is escaped where it is a user, a password or a parameter. A placeholder
// alone is the whole text.
func ResolveConnection(option, text string) (string, error) {
	if err := CheckPlaceholders(text); err != nil || anyPlaceholder.FindString(text) == text {
		return ResolveSecret(option, text)
	}
	var resolved strings.Builder
	end := 0
	for _, at := range anyPlaceholder.FindAllStringIndex(text, -1) {
		value, err := ResolveSecret(option, text[at[0]:at[1]])
		if err != nil {
			return "", err
		}
		resolved.WriteString(text[end:at[0]] + escaped(value, text[:at[0]], text[at[1]:]))
		end = at[1]
	}
	return resolved.String() + text[end:], nil
}

// escaped escapes a value between two parts of a text.
func escaped(value, before, after string) string {
	switch {
	case !strings.Contains(before, "://"):
		return connectionValue.Replace(value)
	case strings.Contains(after, "@"), strings.Contains(before, "?"):
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	}
	return value
}
