package front

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

func (f *Front) newRequest(r *http.Request, next NextHandler, local operation) *request {
	path := strings.TrimPrefix(r.URL.Path, f.options.Base+"/")
	return &request{front: f, local: local, next: next, personal: isPersonal(r), path: path}
}

// readBody reads the body of a POST, which may make the request personal. The local operation, which has read it before,
// has put it back.
func (q *request) readBody(r *http.Request) (err error) {
	if r.Method != http.MethodPost {
		return nil
	}
	if q.body, err = io.ReadAll(r.Body); err != nil {
		return err
	}
	q.read = true
	q.personal = q.personal || mentionsCacheID(q.body)
	q.rewind(r)
	return nil
}

// serveOperation answers a request for an operation. One that came before goes through the cache, any other is answered
// here if possible. Servers are only asked through the cache, so that they are asked once, except for an answer that is
// not to be stored.
func (f *Front) serveOperation(w http.ResponseWriter, r *http.Request, next NextHandler, local operation) error {
	q := f.newRequest(r, next, local)
	if f.state.cache != nil && !q.personal {
		q.schemes = f.currentSchemes()
	}
	if q.schemes != nil && r.Method != http.MethodPost {
		q.number = f.sightings.number(r, q.schemes.seed)
		q.known = f.sightings.look(q.number)
	}
	if q.known != unseen {
		return q.serveStored(w, r)
	}
	here := q.serveHere(w, r)
	if here.missing == nil && (q.schemes == nil || !isFetchFailure(here.err)) {
		return f.finish(Here, here.err)
	}
	switch err := q.readBody(r); {
	case err != nil:
		return f.fail(err)
	case q.schemes == nil || q.personal:
		return q.askOthers(w, r, here)
	case here.missing != nil && q.upstream(r, here.missing) == nil:
		q.known = seenNext
	}
	return q.serveStored(w, r)
}

// serveStored answers by way of the cache: with a response for all, or else with the next handler's. An answer too large
// to be stored is made again for this client.
func (q *request) serveStored(w http.ResponseWriter, r *http.Request) error {
	f, s := q.front, q.schemes
	call := cache.Call{Scheme: &s.shared, Body: q.body, Detach: f.detach, BeginOwn: f.host.BeginOwn}
	d := &toNext
	if q.known != seenNext {
		call.Principal, call.Produce = f.host.Guard.Client(r.Context()), q.produceShared
		err := f.state.cache.Serve(w, r, &call)
		if d = detourOf(err); d == nil {
			return f.finish(Stored, err)
		}
	}
	if d.to == nextStored {
		q.rewind(r)
		if q.number != 0 {
			f.sightings.isNext(q.number)
		}
		call.Scheme, call.Principal, call.Produce = &s.next, f.host.Guard.Principal(r.Context()), q.produceOwn
		err := f.state.cache.Serve(w, r, &call)
		if d = detourOf(err); d == nil {
			return f.finish(Next, err)
		}
	}
	q.rewind(r)
	if d.to == nextStraight {
		return q.passOn(w, r, d.missing.err)
	}
	return f.finish(Here, q.serveHere(w, r).failure())
}

var toNext = detour{to: nextStored}

// produceShared makes an answer for all: here, or by an upstream.
func (q *request) produceShared(r *http.Request) (*cache.Answer, error) {
	made := q.make(r)
	if made.missing != nil {
		return nil, &detour{nextStored, made.missing}
	}
	return made.answer, made.err
}

func (q *request) produceOwn(r *http.Request) (*cache.Answer, error) {
	made := q.make(r)
	if made.missing != nil {
		made = q.askNext(r, made.missing)
	}
	return made.answer, made.failure()
}

// make makes an answer here, or asks an upstream.
func (q *request) make(r *http.Request) result {
	here := q.makeHere(r)
	q.rewind(r)
	if here.missing == nil {
		return here
	}
	if server := q.upstream(r, here.missing); server != nil {
		return q.askUpstream(r, server, here.missing)
	}
	return here
}

func (f *Front) currentSchemes() *schemes {
	library := f.options.Handler.Current()
	if s := f.schemes.Load(); s != nil && s.library == library {
		return s
	}
	epoch := f.options.Epoch(library)
	s := &schemes{
		library: library, seed: f.sightings.seed(epoch),
		shared: cache.Scheme{Space: "shared", Epoch: epoch, VaryBy: cache.VaryByNone},
		next:   cache.Scheme{Space: "next", Epoch: epoch, VaryBy: f.options.VaryBy, Headers: f.options.VaryHeaders},
	}
	f.schemes.Store(s)
	return s
}

func (q *request) rewind(r *http.Request) {
	if q.read {
		r.Body = io.NopCloser(bytes.NewReader(q.body))
	}
}
