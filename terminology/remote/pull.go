package remote

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
)

// gather fetches an expansion, page by page, and for how long it is good. Where the server tells designations
// only when it is asked to, it is asked to, since they are searched; the answers are then without them, as the
// server's own would be.
func (w *Wholes) gather(ctx context.Context, s *Server, x search) (*terminology.Whole, time.Duration, error) {
	language := cmp.Or(x.rest.Get("displayLanguage"), x.q.AcceptLanguage)
	b := &terminology.WholeBuilder{Languages: language}
	ttl, more, err := w.page(ctx, s, x, b)
	if err != nil {
		return nil, 0, err
	}
	if asked := x.rest.Get("includeDesignations") == "true" || x.rest.Has("designation"); !asked && !b.Designations() {
		b = &terminology.WholeBuilder{Languages: language, Terse: true}
		x.rest = maps.Clone(x.rest)
		x.rest.Set("includeDesignations", "true")
		more = true
	}
	for more {
		if _, more, err = w.page(ctx, s, x, b); err != nil {
			return nil, 0, err
		}
	}
	whole, err := b.Whole()
	return whole, ttl, err
}

// page fetches the next page of an expansion.
func (w *Wholes) page(ctx context.Context, s *Server, x search, b *terminology.WholeBuilder) (ttl time.Duration, more bool, err error) {
	count := cmp.Or(w.PageSize, 1000)
	values := maps.Clone(x.rest)
	values["offset"], values["count"] = []string{strconv.Itoa(b.Offset())}, []string{strconv.Itoa(count)}
	answer, err := s.Ask(ctx, Question{Path: x.q.Path, Query: values.Encode(), AcceptLanguage: x.q.AcceptLanguage})
	if err != nil {
		return 0, false, err
	}
	if answer.Status != http.StatusOK || !strings.Contains(answer.Header.Get("Content-Type"), "json") {
		return 0, false, fmt.Errorf("%w: status %d, %s", ErrMalformed, answer.Status, answer.Header.Get("Content-Type"))
	}
	if ttl, err = w.ttl(answer.Header); err != nil {
		return 0, false, err
	}
	if more, err = b.Add(answer.Body, count); err != nil {
		return 0, false, err
	}
	return ttl, more, w.checkSize(b)
}

// checkSize makes sure that an expansion does not become too large.
func (w *Wholes) checkSize(b *terminology.WholeBuilder) error {
	total, _ := b.Total()
	if limit := cmp.Or(w.MaxEntries, 50_000); total > limit || b.Offset() > limit {
		return fmt.Errorf("%w: it has %d entries", errTooMany, max(total, b.Offset()))
	}
	if b.Size() > w.maxBytes() {
		return fmt.Errorf("%w: it needs more than %d bytes", errTooMany, b.Size())
	}
	return nil
}

// ttl returns for how long an answer is good: as it says itself (RFC 9111 §5.2.2), but not longer than is set.
func (w *Wholes) ttl(header http.Header) (time.Duration, error) {
	ttl := cmp.Or(w.TTL, time.Hour)
	for directive := range strings.SplitSeq(strings.Join(header["Cache-Control"], ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache", "private":
			return 0, errNotShared
		case "max-age", "s-maxage":
			if seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				ttl = min(ttl, time.Duration(seconds)*time.Second)
			}
		}
	}
	if ttl == 0 {
		return 0, errNotShared
	}
	return ttl, nil
}
