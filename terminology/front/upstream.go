package front

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// askUpstream asks the terminology server for what is missing. It is still missing if the next handler is to be asked, which
// alone can know a resource by its id. If the server lacks something too, what is missing here is the better answer.
func (q *request) askUpstream(r *http.Request, m *missing) result {
	f := q.front
	if f.state.routes == nil || strings.Count(q.path, "/") > 1 {
		return result{missing: m}
	}
	asked := q.asking(r)
	subject := remote.SubjectOf(asked)
	server := f.state.routes.Server(subject.Lacking(m.err))
	if server == nil {
		return result{missing: m}
	}
	if whole, err := f.state.wholes.Answer(server, asked, f.options.Handler.Current().Synonyms()); err != nil {
		return result{err: err}
	} else if whole != nil {
		return result{answer: answerOf(whole)}
	}
	start := time.Now()
	theirs, err := server.Ask(r.Context(), asked.Request)
	f.host.Metrics.UpstreamTook(r.Context(), time.Since(start), err)
	switch {
	case err != nil:
		err = f.host.Failed(server.Base(), err)
		if stale, _ := f.state.wholes.Stale(server, asked, f.options.Handler.Current().Synonyms()); stale != nil && !errors.Is(err, context.Canceled) {
			return result{answer: answerOf(stale)}
		}
		return result{err: unavailable(m.afterUpstream(err), err)}
	case theirs.Negative() && !m.unknown:
		return m.answer()
	}
	answer, right := accepted(asked, subject.ValueSet, theirs)
	if right {
		f.state.wholes.Asked(server, asked, theirs)
	}
	return result{answer: answer}
}

// asking returns the request as another server is asked it.
func (q *request) asking(r *http.Request) remote.Question {
	return remote.Read(remote.Request{
		Method: r.Method, Path: q.path, Query: r.URL.RawQuery, Body: q.body, ContentType: r.Header.Get("Content-Type"),
		Accept: r.Header.Get("Accept"), AcceptLanguage: negotiation.Languages(r.Header["Accept-Language"]), IfNoneMatch: r.Header.Get("If-None-Match"),
	})
}
