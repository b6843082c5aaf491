package fhirapp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
)

// inProcessRecords sends requests to this gateway's FHIR API without a network connection, through the same routes as a
// client's. Therefore, the FHIR server is configured only once, and fhir_bearer enforces access.
type inProcessRecords struct {
	issuer, fhirBase string
}

const (
	recordTimeout = 20 * time.Second
	maxRecordSize = 4 << 20
)

// Get implements [launch.Records].
func (o *inProcessRecords) Get(ctx context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	from, hasOriginal := ctx.Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if !ok || !hasOriginal {
		return nil, errors.New("context does not belong to a request to a Caddy server")
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	r, err := o.NewRequest(guard.WithToken(ctx, o.token(by)), path, query)
	if err != nil {
		return nil, err
	}
	r.RemoteAddr = from.RemoteAddr
	for _, name := range server.ClientIPHeaders { // policies need the client address from the headers of a trusted proxy
		r.Header.Set(name, requester.IP(ctx))
	}
	w := &responseBuffer{header: http.Header{}, status: http.StatusOK}
	server.ServeHTTP(w, r)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return w.result()
}

func (o *inProcessRecords) NewRequest(ctx context.Context, path string, query url.Values) (*http.Request, error) {
	address := o.issuer + o.fhirBase + "/" + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	r.RequestURI, r.TLS = r.URL.RequestURI(), &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true, ServerName: r.URL.Hostname()}
	r.URL.Scheme, r.URL.Host, r.URL.User = "", "", nil // as in requests received by a server
	r.Body = http.NoBody
	r.Header.Set("Accept", "application/fhir+json")
	return r, nil
}

// token returns the reader in the format in which fhir_bearer represents a client's access token.
func (o *inProcessRecords) token(by launch.Reader) guard.Token {
	return guard.Token{
		Issuer: o.issuer, Subject: by.Subject, Scope: by.Scope, Patient: by.Patient, FHIRUser: by.FHIRUser,
		Attributes: by.Attributes,
	}
}

// responseBuffer is an in-memory response writer.
type responseBuffer struct {
	header    http.Header
	status    int
	body      bytes.Buffer
	isTooLong bool
}

// Header implements [http.ResponseWriter].
func (a *responseBuffer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *responseBuffer) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.status = status
	}
}

// Write implements [http.ResponseWriter].
func (a *responseBuffer) Write(b []byte) (int, error) {
	if a.isTooLong = a.isTooLong || a.body.Len()+len(b) > maxRecordSize; a.isTooLong {
		return 0, fmt.Errorf("record exceeds %d bytes", maxRecordSize)
	}
	return a.body.Write(b)
}

func (a *responseBuffer) result() ([]byte, error) {
	switch {
	case a.isTooLong:
		return nil, fmt.Errorf("response of the FHIR server exceeds %d bytes", maxRecordSize)
	case a.status == http.StatusForbidden, a.status == http.StatusNotFound, a.status == http.StatusGone:
		return nil, launch.ErrNoRecord
	case a.status != http.StatusOK:
		return nil, fmt.Errorf("FHIR server returned status %d", a.status)
	}
	return a.body.Bytes(), nil
}

var _ launch.Records = (*inProcessRecords)(nil)
