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

// TLS configures TLS authentication between the gateway and a server, such as with a hospital's certificate authority.
type TLS struct {
	// A PEM file with the certificate authorities trusted to issue the server's certificate. Default: those of the system.
	CA string `json:"ca,omitempty"`

	// A PEM file with a client certificate. It is read for each connection. Default: none.
	ClientCertificate string `json:"client_certificate,omitempty"`

	// The PEM file with the private key of the client certificate. Required if there is a client certificate. Default: none.
	ClientKey string `json:"client_key,omitempty"`
}

var (
	errNoCertificates      = errors.New("the file contains no PEM certificate") // for files of certificate authorities
	errIncompleteClientTLS = errors.New("tls_client requires a certificate and its key")
)

// Subdirectives returns the subdirectives that set the TLS options.
func (t *TLS) Subdirectives() Block {
	return Block{
		"tls_ca":     Word(&t.CA, nil),
		"tls_client": TwoWords(&t.ClientCertificate, &t.ClientKey),
	}
}

// Authorities returns the content of the certificate authorities' PEM file.
func (t *TLS) Authorities() ([]byte, error) {
	if t.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("tls_ca: reading certificates: %w", err)
	}
	return text, nil
}

// Config returns the TLS configuration, or nil if no option is set. It reads the client certificate to check it; the
// certificate is read again for each connection.
func (t *TLS) Config(authorities []byte) (*tls.Config, error) {
	switch {
	case *t == (TLS{}):
		return nil, nil
	case (t.ClientCertificate == "") != (t.ClientKey == ""):
		return nil, errIncompleteClientTLS
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
	if _, err := t.loadClientCertificate(nil); err != nil {
		return nil, fmt.Errorf("tls_client: loading the client certificate: %w", err)
	}
	config.GetClientCertificate = t.loadClientCertificate
	return config, nil
}

func (t *TLS) loadClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.ClientCertificate, t.ClientKey)
	return &pair, err
}

// ClientConfig returns the TLS configuration for an OAuth or OpenID Connect client, or nil if no option is set.
func (t *TLS) ClientConfig() (*tls.Config, error) {
	authorities, err := t.Authorities()
	if err != nil {
		return nil, err
	}
	return t.Config(authorities)
}

var anyPlaceholder = regexp.MustCompile(`\{[^{}]+\}`)

// connectionEscaper escapes a value in the keyword=value syntax of libpq, both quoted and unquoted.
var connectionEscaper = strings.NewReplacer(
	`\`, `\\`, `'`, `\'`, " ", `\ `, "\t", "\\\t", "\n", "\\\n", "\r", "\\\r", "\v", "\\\v", "\f", "\\\f",
)

// ResolveConnection is like [ResolveSecret] but for the address and credentials of a server, given as a URL or as keyword=value
// pairs of libpq. Placeholder values are escaped within users, passwords and parameters. A text that consists of a single
// placeholder is replaced entirely.
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
		resolved.WriteString(text[end:at[0]] + escapeValue(value, text[:at[0]], text[at[1]:]))
		end = at[1]
	}
	return resolved.String() + text[end:], nil
}

// escapeValue escapes a value for its position between the texts before and after it.
func escapeValue(value, before, after string) string {
	switch {
	case !strings.Contains(before, "://"):
		return connectionEscaper.Replace(value)
	case strings.Contains(after, "@"), strings.Contains(before, "?"):
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	}
	return value
}
