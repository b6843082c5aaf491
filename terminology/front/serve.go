package front

import "net/http"

// serveOperation answers a request for an operation. One that came before goes through the cache, any other is answered
// here if possible. Servers are only asked through the cache, so that they are asked once, except for an answer that is
// not to be stored. A request that depends on earlier ones of its client is then for the next handler: an upstream would
// mix up the cache-ids of our clients.
func (f *Front) serveOperation(w http.ResponseWriter, r *http.Request, q *request) result {
	var res result
	if q.known == unseen {
		res = q.serveHere(w, r)
		if res.missing == nil && (q.schemes == nil || !isFetchFailure(res.err)) {
			return res
		}
		if err := q.readBody(r); err != nil {
			return result{err: err}
		}
		if res.missing != nil && f.state.routes == nil {
			q.known = seenNext
		}
	}
	switch {
	case q.personal:
	case q.schemes != nil:
		res = q.serveStored(w, r)
	default:
		if res = q.askUpstream(r, res.missing); res.answer != nil {
			res.by = Upstream
		}
	}
	if res.missing == nil && !q.personal {
		return res
	}
	return q.passOn(w, r, res.failure())
}
