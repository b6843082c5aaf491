package caddymodule

import (
	"bytes"
	"errors"
	"net/http"
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

// Write implements http.ResponseWriter.
func (w *heldAnswer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.limit > 0 && int64(w.body.Len()+len(b)) > w.limit {
		return 0, errNotTaken
	}
	return w.body.Write(b)
}

// local returns an answer that was made here.
func (w *heldAnswer) local() *cache.Answer {
	a := &cache.Answer{Status: w.status, Header: w.header, Body: w.body.Bytes()}
	if a.Status == http.StatusOK {
		a.Tags = tagsOf(a.Body)
	}
	return a
}

// tagsOf names the definitions that an expansion says it was made of. Where it does
// not say so there are none, and each change ends the answer.
func tagsOf(body []byte) (tags []string) {
	var made struct {
		URL       string `json:"url"`
		Expansion struct {
			Parameter []struct {
				Name string `json:"name"`
				URI  string `json:"valueUri"`
			} `json:"parameter"`
		} `json:"expansion"`
	}
	if json.Unmarshal(body, &made, jsontext.AllowDuplicateNames(true)) != nil || made.URL == "" {
		return nil
	}
	for _, p := range made.Expansion.Parameter {
		if strings.HasPrefix(p.Name, "used-") {
			tags = append(tags, p.URI)
		}
	}
	if tags == nil {
		return nil
	}
	return append(tags, made.URL)
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
