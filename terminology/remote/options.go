package remote

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"time"
)

// Options are those of a [Server].
type Options struct {
	// Base is the server's FHIR base URL, as https://tx.example/r4. Required. http is accepted on loopback.
	Base string

	// AllowHTTP accepts http everywhere: requests, answers and credentials can then be read and changed on the way.
	// Default: false.
	AllowHTTP bool

	// Timeout bounds a request, from connecting to the end of the answer. Default: 10 s.
	Timeout time.Duration

	// MaxAnswer bounds an answer, in bytes, decompressed. Default: 16 MiB.
	MaxAnswer int64

	// TTL is how long its answers are fresh, and shared by all, whatever their headers say but no-store. Default: 0, their
	// headers count.
	TTL time.Duration

	// Bearer is the token to authenticate with (RFC 6750). Default: none.
	Bearer string

	// Username and Password are credentials (RFC 7617), unless Username is empty.
	Username, Password string

	// TLS is for own certificate authorities or a client certificate. Default: Go's configuration.
	TLS *tls.Config

	// Transport sends the requests. Not together with TLS. Default: one of this package.
	Transport http.RoundTripper
}

// Server is a FHIR server. Make one with [NewServer]. It is safe for concurrent use.
type Server struct {
	options Options
	base    *url.URL
	client  *http.Client
	backoff Backoff
}
