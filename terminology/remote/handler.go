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

// Handler is a FHIR server behind a handler such as reverse_proxy. Requests to it inherit only the context of the
// request that caused them.
type Handler struct {
	// Base is the path of the FHIR base, such as /fhir/R4. Default: none.
	Base string

	// Serve is the handler. Required.
	Serve func(http.ResponseWriter, *http.Request) error

	// Timeout is the timeout of a request. Default: 10 s.
	Timeout time.Duration

	// MaxAnswer is the maximum size of a response in bytes. Default: 16 MiB.
	MaxAnswer int64

	// Backoff enforces the server's Retry-After. Default: none.
	Backoff *Backoff
}

// Ask sends a request. Errors are [*Error].
func (h *Handler) Ask(ctx context.Context, q Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Timeout, DefaultTimeout))
	defer cancel()
	request, err := h.request(ctx, q)
	if err != nil {
		return nil, fail(nextName, err)
	}
	if err := h.Backoff.Err(""); err != nil {
		return nil, err
	}
	r := NewRecorder(cmp.Or(h.MaxAnswer, DefaultMaxAnswer))
	err = r.Record(func(w http.ResponseWriter) error { return h.Serve(w, request) })
	h.Backoff.RecordRetryAfter(r.Status(), r.Header(), true)
	if err == nil || r.IsTruncated() {
		var answer *Answer
		if answer, err = r.check(q.Path); err == nil {
			return answer, nil
		}
	}
	if ctx.Err() != nil {
		err = networkError(errUnreachable, ctx.Err()) // the handler may have replaced the error
	}
	return nil, fail(nextName, err)
}

func (h *Handler) request(ctx context.Context, q Request) (*http.Request, error) {
	if err := checkPath(q.Path); err != nil {
		return nil, err
	}
	u := url.URL{Path: strings.TrimSuffix(h.Base, "/") + "/" + q.Path, RawQuery: q.Query}
	r, err := http.NewRequestWithContext(ctx, q.method(), u.String(), bytes.NewReader(q.Body))
	if err != nil {
		return nil, errors.Join(errRequest, err)
	}
	r.RequestURI = u.RequestURI()
	setHeader(r, q)
	r.Header.Set("Accept-Encoding", "identity")
	return r, nil
}

// Definitions returns definitions by a search for a canonical or by a read. It implements [terminology.Source].
func (h *Handler) Definitions(ctx context.Context, m outcome.Missing) ([]jsontext.Value, error) {
	q := Request{Path: m.Kind, Query: searchFor(m.Canonical)}
	if m.ID != "" {
		q = Request{Path: m.Kind + "/" + m.ID}
	}
	answer, err := h.Ask(ctx, q)
	switch {
	case m.ID != "" && errors.Is(err, errNoServer): // IDs are then those of the library
		return nil, nil
	case err != nil:
		return nil, err
	case answer.Status == http.StatusNotFound, answer.Status == http.StatusGone:
		return nil, nil
	case answer.Negative():
		return nil, fail(nextName, fmt.Errorf("%w: it refuses the search for a definition, with status %d", errFailed, answer.Status))
	}
	list, err := resources(answer)
	if err != nil {
		return nil, fail(nextName, fmt.Errorf("%w: %s: %w", errMalformed, m, err))
	}
	return list, nil
}

func searchFor(canonical string) string {
	canonical, _, _ = strings.Cut(canonical, "#")
	location, version, _ := strings.Cut(canonical, "|")
	values := url.Values{"url": {escape(location)}, "_count": {"50"}}
	if version != "" && !strings.ContainsAny(version, "x*?") { // a wildcard matches several versions
		values.Set("version", escape(version))
	}
	return values.Encode()
}

// escape escapes the value of a search parameter (R4 §3.1.1.4.0.1); an unescaped comma means "or".
func escape(value string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`, `$`, `\$`, `|`, `\|`).Replace(value)
}

// resources returns the matches in a Bundle, or the read resource. It returns an error for a summary.
func resources(a *Answer) (list []jsontext.Value, err error) {
	if a.Resource != "Bundle" {
		return []jsontext.Value{a.Body}, checkWhole(a.Body)
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
		if err := checkWhole(entry.Resource); err != nil {
			return nil, err
		}
		list = append(list, entry.Resource)
	}
	return list, nil
}

var errSummary = errors.New("it is a summary of the definition")

// checkWhole returns an error for a summary (R4 §3.1.1.5.8).
func checkWhole(resource jsontext.Value) error {
	var tagged struct {
		Meta struct {
			Tag []struct {
				Code string `json:"code"`
			} `json:"tag"`
		} `json:"meta"`
	}
	if err := json.Unmarshal(resource, &tagged, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	for _, tag := range tagged.Meta.Tag {
		if tag.Code == "SUBSETTED" {
			return errSummary
		}
	}
	return nil
}

var _ terminology.Source = (*Handler)(nil)
