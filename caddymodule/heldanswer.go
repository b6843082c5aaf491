package caddymodule

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// heldAnswer is a ResponseWriter whose answer is held in memory.
type heldAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
	limit  int64 // 0: none
}

func newHeldAnswer() *heldAnswer { return &heldAnswer{header: make(http.Header)} }

// Header implements http.ResponseWriter.
func (w *heldAnswer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *heldAnswer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter. Of what is too much, the first part is held.
func (w *heldAnswer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if room := w.limit - int64(w.body.Len()); w.limit > 0 && int64(len(b)) > room {
		w.body.Write(b[:room])
		return 0, errNotTaken
	}
	return w.body.Write(b)
}

// local returns an answer that was made here. Its entity tag is that of answers which
// are made here for one client, so that who has one of these has it still when it is
// kept, and no more.
func (w *heldAnswer) local() *cache.Answer {
	a := &cache.Answer{Status: w.status, Header: w.header, Body: w.body.Bytes()}
	if a.Status == http.StatusOK {
		a.EntityTag, a.Tags = strings.Trim(w.header.Get("Etag"), `"`), tagsOf(a.Body)
	}
	return a
}

// madeOf is what an expansion says that it was made of.
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

// tagsOf names the definitions that an expansion was made of: the value set, those
// that it says it used, and the code systems that its codes are of, which may not be
// known yet. There are none where it does not say so, as it leaves parts out; then
// each change ends it.
func tagsOf(body []byte) (tags []string) {
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

// of returns an answer of the next handler as it was recorded.
func (w *heldAnswer) of(r *remote.Recorder) (*cache.Answer, error) {
	if err := r.Relay(); err != nil {
		return nil, err
	}
	return &cache.Answer{Status: w.status, Header: w.header, Body: w.body.Bytes()}, nil
}

// errNotTaken is the error for what is too large to be held.
var errNotTaken = errors.New("the answer is too large to be held")
