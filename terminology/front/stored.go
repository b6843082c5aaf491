package front

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// serveStored answers by way of the cache: with a response for all, or else with the next handler's. Of an answer too large
// to be stored, one from here is made again for this client; for the next handler's, the result is what is missing.
func (q *request) serveStored(w http.ResponseWriter, r *http.Request) result {
	f, s := q.front, q.schemes
	call := cache.Call{Scheme: &s.shared, Body: q.body, Detach: f.host.Server.Detach, BeginOwn: f.host.BeginOwn}
	d := &toNext
	if q.known != seenNext {
		call.Principal, call.Produce = f.host.Guard.Client(r.Context()), q.produceShared
		err := f.state.cache.Serve(w, r, &call)
		if d = detourOf(err); d == nil {
			return written(Stored, err)
		}
	}
	if d.to == nextStored {
		if q.number != 0 {
			f.sightings.isNext(q.number)
		}
		call.Scheme, call.Principal, call.Produce = &s.next, f.host.Guard.Principal(r.Context()), q.produceOwn
		err := f.state.cache.Serve(w, r, &call)
		if d = detourOf(err); d == nil {
			return written(Next, err)
		}
	}
	if d.to == hereStraight {
		return q.serveHere(w, r)
	}
	return result{missing: d.missing}
}

// written is the result of a handler that has written an answer unless it returned an error.
func written(by Outcome, err error) result {
	if err != nil {
		return result{err: err}
	}
	return result{by: by}
}

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
	if here.missing == nil {
		return here
	}
	return q.askUpstream(r, here.missing)
}
