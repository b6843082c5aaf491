package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// passesWhole reports whether a batch or transaction needs no judging: each entry is a request that would pass, and
// whose answer is no Bundle, the links in which would have to be sealed.
func (x *Bundles) passesWhole(s *submission) bool {
	for n := range s.entries {
		if c, i, err := s.entries[n].call(); err != nil || !x.Entries.PassesSingle(c, i) {
			return false
		}
	}
	return s.areDistinct() && len(s.entries) > 0
}

// areDistinct reports whether no fullUrl is there twice.
func (s *submission) areDistinct() bool {
	seen := map[string]bool{}
	for _, e := range s.entries {
		if e.fullURL != "" && seen[e.fullURL] {
			return false
		}
		seen[e.fullURL] = true
	}
	return true
}

// sendWhole has the FHIR server answer a Bundle that needs no judging. It is written anew all the same, so that the
// server gets what was read here.
func (x *Bundles) sendWhole(ctx context.Context, s *submission) (*message.Answer, error) {
	b := &message.Bundle{Kind: s.kind, Total: -1}
	for n := range s.entries {
		e := &s.entries[n]
		c, i, err := e.call()
		if err != nil {
			return nil, err
		}
		x.Entries.Decided(i, nil)
		b.Entries = append(b.Entries, message.Entry{FullURL: e.fullURL, Resource: e.sent(c), Request: requestOf(c)})
	}
	header := http.Header{"Content-Type": {message.TypeJSON}}
	if prefer := s.entries[0].header["Prefer"]; prefer != nil {
		header["Prefer"] = prefer
	}
	a, err := x.Server.Ask(ctx, message.Call{Method: http.MethodPost, Header: header, Body: b.Text()})
	if err != nil || !a.Succeeded() || !a.IsJSON() {
		return a, err
	}
	return x.localizeResponses(a)
}

// sent is the resource of an entry as it goes on: none where there is no use for one.
func (e *submitted) sent(c message.Call) []byte {
	if c.Body == nil {
		return nil
	}
	return e.resource
}

// requestOf is a call as Bundle.entry.request.
func requestOf(c message.Call) []byte {
	var out bytes.Buffer
	target := c.Path
	if c.Query != "" {
		target += "?" + c.Query
	}
	out.WriteString(`{"method":` + message.Quoted(c.Method) + `,"url":` + message.Quoted(target))
	for _, member := range []string{"ifMatch", "ifNoneMatch", "ifModifiedSince", "ifNoneExist"} {
		if value := c.Header.Get(conditions[member]); value != "" {
			out.WriteString(`,"` + member + `":` + message.Quoted(value))
		}
	}
	out.WriteString("}")
	return out.Bytes()
}

// localizeResponses has an answered Bundle name resources as clients know them.
func (x *Bundles) localizeResponses(a *message.Answer) (*message.Answer, error) {
	b, err := message.ParseBundle(a.Body)
	if err != nil {
		return nil, message.Withheld(err)
	}
	x.At.LocalizeEntries(b.Entries)
	for n, e := range b.Entries {
		if e.Response == nil {
			continue
		}
		var r response
		if err := json.Unmarshal(e.Response, &r); err != nil {
			return nil, message.Withheld(err)
		}
		if r.Location != "" {
			r.Location, _ = x.At.LocalURL(r.Location)
		}
		b.Entries[n].Response = r.text()
	}
	b.Links = nil
	return x.At.Localize(a.With(b.Text())), nil
}
