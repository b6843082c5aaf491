package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// serve answers a request for an operation: from the cache what was asked before,
// and else from here, if it can be; others are asked by way of the cache alone, so
// that they are asked once.
func (h *Expand) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, local operation) error {
	if h.kept.cache == nil || isPersonal(r) {
		return h.serveUncached(w, r, next, local)
	}
	e := h.epochs()
	number, known := uint64(0), unseen
	if r.Method != http.MethodPost {
		number = h.sightings.of(r, e.seed)
		known = h.sightings.look(number)
	}
	q := &question{h: h, local: local, next: next, asker: askerOf(r.Context()), operation: strings.TrimPrefix(r.URL.Path, h.FHIRBase+"/")}
	if known == unseen {
		here := h.serveHere(w, r, local)
		if here == nil || !elsewhere(here) && !isFetchFailure(here) {
			return told(here)
		}
		personal, err := q.read(r)
		switch {
		case err != nil:
			return failure(err)
		case personal:
			return askOthers(w, r, next, here)
		}
		if elsewhere(here) && h.upstream(r, q.operation, q.body, here) == nil {
			known = seenNext
		}
	}
	return h.serveKept(w, r, e, q, number, known)
}

// serveHere answers a request from here, with what the cache says of its answers.
func (h *Expand) serveHere(w http.ResponseWriter, r *http.Request, local operation) error {
	header := w.Header()
	header["Cache-Status"], header["Cache-Control"] = missed, h.public
	if isAuthorised(r) {
		header["Cache-Control"] = h.private
	}
	err := local(w, r)
	if err != nil {
		delete(header, "Cache-Status")
		delete(header, "Cache-Control")
	}
	return err
}

// isAuthorised reports whether a request is one that not everybody could make.
func isAuthorised(r *http.Request) bool {
	return len(r.Header["Authorization"]) > 0 || len(r.Header["Cookie"]) > 0 || principal(r.Context(), false) != (cache.Principal{})
}

// read reads the body of a POST, which was read before and put back, and reports
// whether the request is personal by what is in it.
func (q *question) read(r *http.Request) (personal bool, err error) {
	if r.Method != http.MethodPost {
		return false, nil
	}
	if q.body, err = io.ReadAll(r.Body); err != nil {
		return false, err
	}
	q.rewind(r)
	return mentionsCacheID(q.body), nil
}

// isFetchFailure reports whether a definition could not be fetched, so that an older
// answer is the best there is.
func isFetchFailure(err error) bool {
	var failed *terminology.Error
	return errors.As(err, &failed) && failed.Status > http.StatusInternalServerError && !isBusy(err)
}

// serveKept answers a request by way of the cache.
func (h *Expand) serveKept(w http.ResponseWriter, r *http.Request, e *epochs, q *question, number uint64, known sighting) error {
	call := cache.Call{Scheme: &e.shared, Principal: principal(r.Context(), false), Body: q.body, Produce: q.forAll}
	var err error
	result := expandedCached
	if known != seenNext {
		err = h.kept.cache.Serve(w, r, &call)
	}
	if known == seenNext || err != nil && isForNext(err) { // on a hit, errors.As is not worth its allocation
		if number != 0 {
			h.sightings.isNext(number)
		}
		q.remember(r)
		q.rewind(r)
		call.Scheme, call.Produce, call.Principal = &e.next, q.forOne, principal(r.Context(), true)
		result = expandedNext
		err = h.kept.cache.Serve(w, r, &call)
	}
	if err == nil {
		metrics.expansion(result)
		return nil
	}
	var large *passOn
	switch {
	case errors.As(err, &large):
		q.rewind(r)
		return askOthers(w, r, q.next, large.here)
	case errors.Is(err, errMadeAnew):
		q.rewind(r)
		return told(h.serveHere(w, r, q.local))
	}
	return failure(err)
}

func isForNext(err error) bool {
	var needed *forNext
	return errors.As(err, &needed)
}

// missed is the Cache-Status of what is made here.
var missed = []string{"caddy-fhir; fwd=miss"}

// lifetime says for how long clients may use an answer.
func (c *ExpandCaching) lifetime() string {
	if c.MaxAge == 0 {
		return "no-cache"
	}
	return fmt.Sprintf("max-age=%d", time.Duration(c.MaxAge)/time.Second)
}

// principal is whom fhir_bearer let in. Where answers are the same for all, it is
// enough to know that it was somebody.
func principal(ctx context.Context, who bool) (p cache.Principal) {
	replacer, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return p
	}
	if p.Client, ok = replacer.GetString("http.auth.user.client_id"); !ok {
		return p // there is no guard, which sets all of them
	}
	if who || p.Client == "" {
		p.User, _ = replacer.GetString("http.auth.user.id")
		p.Issuer, _ = replacer.GetString("http.auth.user.issuer")
		p.Scope, _ = replacer.GetString("http.auth.user.scope")
		p.Patient, _ = replacer.GetString("http.auth.user.patient")
		p.FHIRUser, _ = replacer.GetString("http.auth.user.fhir_user")
	}
	return p
}

// serveUncached answers a request without looking into the cache or putting anything
// there.
func (h *Expand) serveUncached(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, local operation) error {
	here := local(w, r)
	if here == nil || !elsewhere(here) {
		return told(here)
	}
	q := &question{h: h, next: next, operation: strings.TrimPrefix(r.URL.Path, h.FHIRBase+"/")}
	personal, err := q.read(r)
	switch {
	case err != nil:
		return failure(err)
	case personal, isPersonal(r): // what is remembered under a cache-id elsewhere, an upstream would give to others
		return askOthers(w, r, next, here)
	}
	return q.askPast(w, r, here)
}

// askPast asks others past the cache.
func (q *question) askPast(w http.ResponseWriter, r *http.Request, here error) error {
	server := q.h.upstream(r, q.operation, q.body, here)
	if server == nil {
		return askOthers(w, r, q.next, here)
	}
	answer, err := q.askUpstream(r, server, here)
	if err != nil {
		return failure(err)
	}
	metrics.expansion(expandedUpstream)
	return writeAnswer(w, r, answer, q.h.private)
}

// writeAnswer gives a client an answer that is not kept. What an authorised request
// gets is private, whatever a server that does not know of the guard says (RFC 9111
// §3.5).
func writeAnswer(w http.ResponseWriter, r *http.Request, a *cache.Answer, private []string) error {
	header := w.Header()
	maps.Copy(header, a.Header)
	if isAuthorised(r) && !strings.Contains(header.Get("Cache-Control"), "no-store") {
		header["Cache-Control"] = private
	}
	header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(a.Status)
	if r.Method == http.MethodHead {
		return nil
	}
	_, err := w.Write(a.Body)
	return err
}
