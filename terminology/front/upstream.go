package front

import (
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// upstream returns the terminology server for what is missing. It is nil if the next handler is to be asked, which alone
// can know a resource by its id.
func (q *request) upstream(r *http.Request, m *missing) *remote.Server {
	if q.front.state.routes == nil || strings.Count(q.path, "/") > 1 {
		return nil
	}
	subject := q.subjectOf(r)
	return q.front.state.routes.Server(subject.Lacking(m.err))
}

func (q *request) subjectOf(r *http.Request) remote.Subject {
	if q.subject == nil {
		s := remote.SubjectOf(r.URL.RawQuery, r.Header.Get("Content-Type"), q.body)
		q.subject = &s
	}
	return *q.subject
}

// askUpstream asks a terminology server. If that lacks something too, what is missing here is the better answer.
func (q *request) askUpstream(r *http.Request, server *remote.Server, m *missing) result {
	asked := q.asking(r)
	host, wholes := &q.front.host, q.front.state.wholes
	if whole, err := wholes.Answer(server, asked, q.front.options.Handler.Current().Synonyms()); whole != nil || err != nil {
		return result{answer: answerOf(whole), err: err}
	}
	start := time.Now()
	answer, err := server.Ask(r.Context(), asked)
	host.Metrics.UpstreamTook(time.Since(start))
	switch {
	case err != nil:
		err = host.Failed(server.Base(), err)
		return result{err: unavailable(m.afterUpstream(err), err)}
	case answer.Negative() && !m.unknown:
		return m.answer()
	case !q.isAnsweredBy(r, answer):
		return result{answer: notStored(answer)}
	}
	wholes.Asked(server, asked, answer)
	return result{answer: answerOf(answer.Cut(asked))}
}

// asking returns the request as another server is asked it.
func (q *request) asking(r *http.Request) remote.Request {
	return remote.Request{
		Method: r.Method, Path: q.path, Query: r.URL.RawQuery, Body: q.body, ContentType: r.Header.Get("Content-Type"),
		Accept: r.Header.Get("Accept"), AcceptLanguage: negotiation.Languages(r.Header["Accept-Language"]), IfNoneMatch: r.Header.Get("If-None-Match"),
	}
}

// isAnsweredBy reports whether an expansion is of the value set asked for.
func (q *request) isAnsweredBy(r *http.Request, a *remote.Answer) bool {
	if q.path != "ValueSet/$expand" || a.Negative() || a.NotModified {
		return true
	}
	subject := q.subjectOf(r)
	return a.IsOf(subject.ValueSet)
}

// notStored is an answer for this client only, because it is probably wrong.
func notStored(a *remote.Answer) *cache.Answer {
	answer := answerOf(a)
	answer.Header = maps.Clone(answer.Header)
	answer.Header["Cache-Control"] = []string{"no-store"}
	return answer
}

// answerOf converts an answer for the cache, without tags: any change of a definition invalidates it.
func answerOf(a *remote.Answer) *cache.Answer {
	if a == nil {
		return nil
	}
	return &cache.Answer{Status: a.Status, Header: a.Header, Body: a.Body}
}
