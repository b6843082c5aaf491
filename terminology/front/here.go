package front

import (
	"errors"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// serveHere answers the client directly.
func (q *request) serveHere(w http.ResponseWriter, r *http.Request) result {
	header := w.Header()
	if q.schemes != nil {
		header["Cache-Status"], header["Cache-Control"] = missed, q.front.public
		if q.front.isAuthorised(r) {
			header["Cache-Control"] = q.front.private
		}
	}
	err := q.local(q.front.own(w), r)
	if err == nil {
		return result{by: Here}
	}
	if q.schemes != nil {
		delete(header, "Cache-Status")
		delete(header, "Cache-Control")
	}
	return resultOf(err)
}

// ownWriter is for an answer made here.
type ownWriter struct {
	http.ResponseWriter
	begin func(w http.ResponseWriter, status int)
}

func (f *Front) own(w http.ResponseWriter) http.ResponseWriter {
	if f.host.BeginOwn == nil {
		return w
	}
	return &ownWriter{w, f.host.BeginOwn}
}

// WriteHeader implements http.ResponseWriter.
func (w *ownWriter) WriteHeader(status int) { w.begin(w.ResponseWriter, status) }

// Unwrap lets http.ResponseController find what else the writer can do.
func (w *ownWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// missed is the Cache-Status of what is made here (RFC 9211).
var missed = []string{"caddy-fhir; fwd=miss"}

// makeHere makes an answer to be stored.
func (q *request) makeHere(r *http.Request) result {
	recorder := remote.NewRecorder(maxHeldHere)
	err := q.local(recorder, r)
	switch {
	case recorder.Cut():
		return result{err: &detour{to: hereStraight}}
	case err != nil:
		return resultOf(err)
	}
	a := recorded(recorder)
	a.Own = true
	if a.Status == http.StatusOK { // its tag is kept, since a client may have had it before it was stored
		a.EntityTag, a.Tags = strings.Trim(a.Header.Get("Etag"), `"`), definitionsOf(a.Body)
		if a.Tags != nil && isInstance(q.path) { // a resource with this id may be written
			a.Tags = append(a.Tags, path.Dir(q.path))
		}
	}
	return result{answer: a}
}

func recorded(by *remote.Recorder) *cache.Answer {
	return &cache.Answer{Status: by.Status(), Header: by.Header(), Body: by.Body()}
}

// maxHeldHere bounds the stored answers made here, in bytes. A larger one is made for each client, which is as fast as
// copying it.
const maxHeldHere = 2 << 20

// isFetchFailure reports whether a definition could not be fetched: a stale response is better then.
func isFetchFailure(err error) bool {
	failed, ok := errors.AsType[*outcome.Error](err)
	return ok && failed.Status > http.StatusInternalServerError && !errors.Is(err, budget.ErrBusy)
}

// madeOf is what an expansion says of its definitions.
type madeOf struct {
	URL  string `json:"url"`
	Meta struct {
		Tag []struct {
			Code string `json:"code"`
		} `json:"tag"`
	} `json:"meta"`
	Expansion struct {
		Parameter []struct {
			Name string `json:"name"`
			URI  string `json:"valueUri"`
		} `json:"parameter"`
		Contains []madeOfSystem `json:"contains"`
	} `json:"expansion"`
}

type madeOfSystem struct {
	System   string         `json:"system"`
	Contains []madeOfSystem `json:"contains"`
}

// definitionsOf returns the canonicals of what an expansion was made of: the value set, what it lists as used, and the
// code systems of its codes. It returns none for an incomplete expansion, which any change of a definition invalidates.
func definitionsOf(body []byte) (tags []string) {
	var made madeOf
	if json.Unmarshal(body, &made, jsontext.AllowDuplicateNames(true)) != nil || made.URL == "" || len(made.Meta.Tag) > 0 {
		return nil
	}
	seen := map[string]bool{made.URL: true}
	for _, p := range made.Expansion.Parameter {
		if strings.HasPrefix(p.Name, "used-") {
			seen[p.URI] = true
		}
	}
	addSystems(seen, made.Expansion.Contains)
	return slices.Collect(maps.Keys(seen))
}

func addSystems(to map[string]bool, list []madeOfSystem) {
	for i := range list {
		to[list[i].System] = true
		addSystems(to, list[i].Contains)
	}
	delete(to, "")
}

func (f *Front) isAuthorised(r *http.Request) bool {
	return len(r.Header["Authorization"]) > 0 || len(r.Header["Cookie"]) > 0 || f.host.Guard.Client(r.Context()) != (cache.Principal{})
}
