package remote

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Request is an operation, or a search, on a FHIR server.
type Request struct {
	// Method is GET or POST. HEAD is sent as GET, since an answer without a body cannot be checked. Default: GET.
	Method string

	// Path is the path below the base URL, as ValueSet/$expand.
	Path string

	// Query is the query string, encoded. Default: none.
	Query string

	// Body is the body of a POST.
	Body []byte

	// ContentType is the media type of Body. Default: application/fhir+json.
	ContentType string

	// Accept is the header of that name. Default, also for one that is not for FHIR, such as a browser's:
	// application/fhir+json.
	Accept string

	// AcceptLanguage is the header of that name. Default: none.
	AcceptLanguage string

	// IfNoneMatch is the ETag of the client's answer. Default: none.
	IfNoneMatch string
}

func (q *Request) method() string {
	if q.Method == http.MethodHead {
		return http.MethodGet
	}
	return cmp.Or(q.Method, http.MethodGet)
}

// accept returns the media type to ask for. Some servers answer browsers with pages.
func (q *Request) accept() string {
	if fhir := strings.Contains(q.Accept, "json") || strings.Contains(q.Accept, "xml"); !fhir || strings.Contains(q.Accept, "html") {
		return "application/fhir+json"
	}
	return q.Accept
}

func setHeader(r *http.Request, q Request) {
	r.Header.Set("Accept", q.accept())
	if r.Method == http.MethodPost {
		r.Header.Set("Content-Type", cmp.Or(q.ContentType, "application/fhir+json"))
		r.Header["Idempotency-Key"] = []string{} // not sent, but lets Go repeat the request when a connection is lost
	}
	for name, value := range map[string]string{"Accept-Language": q.AcceptLanguage, "If-None-Match": q.IfNoneMatch} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
}

// checkPath refuses a path that could leave the base URL: it allows the characters of ids and operation names.
func checkPath(path string) error {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || strings.Trim(part, ".") == "" || strings.ContainsFunc(part, isNoPath) {
			return fmt.Errorf("%w: path %q", errRequest, path)
		}
	}
	return nil
}

func isNoPath(r rune) bool {
	letter := 'a' <= r|0x20 && r|0x20 <= 'z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("$-._", r)
}

// request returns the HTTP request for a request.
func (s *Server) request(ctx context.Context, q Request) (*http.Request, error) {
	if err := checkPath(q.Path); err != nil {
		return nil, err
	}
	u := *s.base
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + q.Path
	u.RawPath, u.RawQuery = "", q.Query
	var body io.Reader
	if q.method() == http.MethodPost {
		body = bytes.NewReader(q.Body)
	}
	r, err := http.NewRequestWithContext(ctx, q.method(), u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	s.setCredentials(r)
	setHeader(r, q)
	return r, nil
}

func (s *Server) setCredentials(r *http.Request) {
	switch {
	case s.options.Bearer != "":
		r.Header.Set("Authorization", "Bearer "+s.options.Bearer)
	case s.options.Username != "":
		r.SetBasicAuth(s.options.Username, s.options.Password)
	}
}
