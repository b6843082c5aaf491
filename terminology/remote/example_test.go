package remote_test

import (
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// Requests that depend on missing definitions are sent to the server with a matching route, or else to the next handler. Only
// valid responses can be cached.
func Example() {
	var (
		local  *api.Handler
		routes *remote.Routes
		wholes *remote.FullExpansions
		next   func(http.ResponseWriter, *http.Request) error
	)
	_ = func(w http.ResponseWriter, r *http.Request, operation string, body []byte) (*remote.Response, error) {
		err := local.Expand(w, r)
		if !errors.Is(err, outcome.ErrUnknown) && !errors.Is(err, outcome.ErrIncomplete) {
			return nil, err
		}
		q := remote.ParseRequest(remote.Request{
			Method: r.Method, Path: operation, Query: r.URL.RawQuery, Body: body,
			ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"), AcceptLanguage: r.Header.Get("Accept-Language"),
		})
		server := routes.Server(remote.SubjectOf(q).WithMissing(err))
		if server == nil {
			recorder := remote.NewRecorder(remote.DefaultMaxResponseSize)
			err := recorder.Record(func(w http.ResponseWriter) error { return next(w, remote.WithRecordableHeaders(r)) })
			if err != nil {
				return nil, err
			}
			return recorder.Response(operation)
		}
		if answer, err := wholes.Respond(server, q, local.Library.Definitions().Synonyms()); answer != nil || err != nil {
			return answer, err
		}
		answer, err := server.Do(r.Context(), q.Request)
		if err == nil {
			wholes.RecordResponse(server, q, answer)
		}
		return answer, err
	}
}
