package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Handler is a FHIR server behind an HTTP handler such as reverse_proxy. Requests to the server inherit nothing but the context
// of the request that caused them.
type Handler struct {
	// Base is the path of the FHIR base, such as /fhir/R4. Default: the root.
	Base string

	// Serve sends a request to the server. Required.
	Serve func(http.ResponseWriter, *http.Request) error

	// Timeout is the timeout of a request. Default: 10 s.
	Timeout time.Duration

	// MaxResponseSize is the maximum size of a response in bytes. Default: 16 MiB.
	MaxResponseSize int64

	// Backoff enforces the server's Retry-After. Default: nil, which ignores it.
	Backoff *Backoff
}

// Do sends a request. Its errors are of type [*Error].
func (h *Handler) Do(ctx context.Context, q Request) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Timeout, DefaultTimeout))
	defer cancel()
	request, err := h.request(ctx, q)
	if err != nil {
		return nil, newError(nextHandlerName, err)
	}
	if err := h.Backoff.Err(""); err != nil {
		return nil, err
	}
	r := NewRecorder(cmp.Or(h.MaxResponseSize, DefaultMaxResponseSize))
	err = r.Record(func(w http.ResponseWriter) error { return h.Serve(w, request) })
	h.Backoff.RecordRetryAfter(r.Status(), r.Header(), true)
	if err == nil || r.IsTruncated() {
		var response *Response
		if response, err = r.check(q.Path); err == nil {
			return response, nil
		}
	}
	if ctx.Err() != nil {
		err = networkError(errUnreachable, ctx.Err()) // the handler may have replaced the context's error
	}
	return nil, newError(nextHandlerName, err)
}

func (h *Handler) request(ctx context.Context, q Request) (*http.Request, error) {
	if err := checkPath(q.Path); err != nil {
		return nil, err
	}
	u := url.URL{Path: strings.TrimSuffix(h.Base, "/") + "/" + q.Path, RawQuery: q.Query}
	r, err := http.NewRequestWithContext(ctx, q.method(), u.String(), bytes.NewReader(q.Body))
	if err != nil {
		return nil, errors.Join(errInvalidRequest, err)
	}
	r.RequestURI = u.RequestURI()
	setHeader(r, q)
	r.Header.Set("Accept-Encoding", "identity")
	return r, nil
}

// Definitions implements [terminology.Source]. It searches for a canonical or reads an ID.
func (h *Handler) Definitions(ctx context.Context, m outcome.MissingDefinition) ([]jsontext.Value, error) {
	q := Request{Path: m.ResourceType, Query: searchQuery(m.Canonical)}
	if m.ID != "" {
		q = Request{Path: m.ResourceType + "/" + m.ID}
	}
	response, err := h.Do(ctx, q)
	switch {
	case m.ID != "" && errors.Is(err, errNoServer): // there is no server behind the gateway, so IDs are those of the library
		return nil, nil
	case err != nil:
		return nil, err
	case response.Status == http.StatusNotFound, response.Status == http.StatusGone:
		return nil, nil
	case response.IsNegative():
		return nil, newError(nextHandlerName, fmt.Errorf("%w: search for a definition rejected with status %d", errServerFailed, response.Status))
	}
	list, err := resourcesIn(response)
	if err != nil {
		return nil, newError(nextHandlerName, fmt.Errorf("%w: %s: %w", errMalformed, m, err))
	}
	return list, nil
}

func searchQuery(canonical string) string {
	canonical, _, _ = strings.Cut(canonical, "#")
	location, version, _ := strings.Cut(canonical, "|")
	values := url.Values{"url": {escape(location)}, "_count": {"50"}}
	if version != "" && !strings.ContainsAny(version, "x*?") { // a wildcard can match several versions
		values.Set("version", escape(version))
	}
	return values.Encode()
}

// escape escapes the value of a search parameter (R4 §3.1.1.4.0.1). An unescaped comma would mean "or".
func escape(value string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`, `$`, `\$`, `|`, `\|`).Replace(value)
}

// resourcesIn returns the matches in a Bundle, or the body itself if it is not a Bundle. It returns an error for a summary.
func resourcesIn(a *Response) (list []jsontext.Value, err error) {
	if a.Resource != "Bundle" {
		return []jsontext.Value{a.Body}, checkNotSummary(a.Body)
	}
	var bundle struct {
		Type  string `json:"type"`
		Entry []struct {
			Resource jsontext.Value `json:"resource"`
			Search   struct {
				Mode string `json:"mode"`
			} `json:"search"`
		} `json:"entry"`
	}
	if err := json.Unmarshal(a.Body, &bundle, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, err
	}
	if bundle.Type != "searchset" {
		return nil, fmt.Errorf("a Bundle of type %q", bundle.Type)
	}
	for _, entry := range bundle.Entry {
		if entry.Resource == nil || entry.Search.Mode != "" && entry.Search.Mode != "match" {
			continue
		}
		if err := checkNotSummary(entry.Resource); err != nil {
			return nil, err
		}
		list = append(list, entry.Resource)
	}
	return list, nil
}

var errSummary = errors.New("the server returned a summary of the definition")

// checkNotSummary returns an error if a resource is only a summary (R4 §3.1.1.5.8).
func checkNotSummary(resource jsontext.Value) error {
	var summary struct {
		Meta struct {
			Tag []struct {
				Code string `json:"code"`
			} `json:"tag"`
		} `json:"meta"`
	}
	if err := json.Unmarshal(resource, &summary, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	for _, tag := range summary.Meta.Tag {
		if tag.Code == "SUBSETTED" {
			return errSummary
		}
	}
	return nil
}

var _ terminology.Source = (*Handler)(nil)
