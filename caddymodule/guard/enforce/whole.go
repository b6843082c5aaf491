package enforce

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

// passesWhole reports whether a batch or transaction needs no judging: each entry is a request that would pass, and
// whose answer is no Bundle, the links in which would have to be sealed.
func (x *bundles) passesWhole(s *submission) bool {
	for n := range s.entries {
		if c, i, err := s.entries[n].call(); err != nil || !x.entries.PassesSingle(c, i) {
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
func (x *bundles) sendWhole(ctx context.Context, s *submission) (*answer, error) {
	b := &bundle{kind: s.kind, total: -1}
	for n := range s.entries {
		e := &s.entries[n]
		c, i, err := e.call()
		if err != nil {
			return nil, err
		}
		x.entries.Decided(i, nil)
		b.entries = append(b.entries, entry{fullURL: e.fullURL, resource: e.sent(c), request: requestOf(c)})
	}
	header := http.Header{"Content-Type": {typeJSON}}
	if prefer := s.entries[0].header["Prefer"]; prefer != nil {
		header["Prefer"] = prefer
	}
	a, err := x.server.Ask(ctx, call{method: http.MethodPost, header: header, body: b.text()})
	if err != nil || !a.succeeded() || !a.isJSON() {
		return a, err
	}
	return x.localizeResponses(a)
}

// sent is the resource of an entry as it goes on: none where there is no use for one.
func (e *submitted) sent(c call) []byte {
	if c.body == nil {
		return nil
	}
	return e.resource
}

// requestOf is a call as Bundle.entry.request.
func requestOf(c call) []byte {
	var out bytes.Buffer
	target := c.path
	if c.query != "" {
		target += "?" + c.query
	}
	out.WriteString(`{"method":` + quoted(c.method) + `,"url":` + quoted(target))
	for _, member := range []string{"ifMatch", "ifNoneMatch", "ifModifiedSince", "ifNoneExist"} {
		if value := c.header.Get(conditions[member]); value != "" {
			out.WriteString(`,"` + member + `":` + quoted(value))
		}
	}
	out.WriteString("}")
	return out.Bytes()
}

// localizeResponses has an answered Bundle name resources as clients know them.
func (x *bundles) localizeResponses(a *answer) (*answer, error) {
	b, err := parseBundle(a.body)
	if err != nil {
		return nil, withheld(err)
	}
	x.at.localizeEntries(b.entries)
	for n, e := range b.entries {
		if e.response == nil {
			continue
		}
		var r response
		if err := json.Unmarshal(e.response, &r); err != nil {
			return nil, withheld(err)
		}
		if r.Location != "" {
			r.Location, _ = x.at.localURL(r.Location)
		}
		b.entries[n].response = r.text()
	}
	b.links = nil
	return x.at.localize(a.with(b.text())), nil
}
