package front

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// schemes make the keys of the responses that were made from one library.
type schemes struct {
	library *terminology.Library
	seed    uint64       // of the library, for sightings
	shared  cache.Scheme // of answers that are the same for all
	next    cache.Scheme // of the next handler's answers
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

// serveStored answers by way of the cache: with a response for all, or else with the next handler's. An answer too large
// to be stored is made again for this client.
func (q *request) serveStored(w http.ResponseWriter, r *http.Request, s *schemes) error {
	f := q.front
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
		if q.number != 0 {
			f.sightings.isNext(q.number)
		}
		q.rewind(r)
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
	if here.missing == nil {
		return here
	}
	if server := q.upstream(r, here.missing); server != nil {
		return q.askUpstream(r, server, here.missing)
	}
	return here
}

// serveUnstored answers without the cache.
func (q *request) serveUnstored(w http.ResponseWriter, r *http.Request) error {
	f := q.front
	here := resultOf(q.local(f.own(w), r))
	if here.missing == nil {
		return f.finish(Here, here.err)
	}
	if err := q.readBody(r); err != nil {
		return f.fail(err)
	}
	server := q.upstream(r, here.missing)
	if server == nil || q.personal { // an upstream would mix up the cache-ids of our clients
		return q.passOn(w, r, here.missing.err)
	}
	theirs := q.askUpstream(r, server, here.missing)
	if theirs.err != nil {
		return f.fail(theirs.err)
	}
	f.host.Metrics.Count(Upstream)
	return f.write(w, r, theirs.answer, f.private)
}
