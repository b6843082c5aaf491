package sample

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// create handles create and conditional create.
func create(s *Store, q request) (reply, error) {
	if q.Kind == interaction.ConditionalCreate {
		v, err := findUnique(s, q)
		switch {
		case err != nil:
			return reply{}, err
		case v != nil:
			response := v.reply(http.StatusOK)
			response.header.Set("Location", q.location(v))
			return response, nil
		}
	}
	if q.ID = q.id; q.ID == "" {
		q.ID = newID()
	}
	return putBody(s, q, http.MethodPost)
}

// update handles update and conditional update. If the resource does not exist, it is created.
func update(s *Store, q request) (reply, error) {
	if q.Kind == interaction.ConditionalUpdate {
		v, err := findUnique(s, q)
		switch {
		case err != nil:
			return reply{}, err
		case v == nil:
			q.Interaction = interaction.Interaction{Kind: interaction.Create, Type: q.Type}
			return create(s, q)
		}
		q.ID = v.reference.ID
	}
	res, err := resource.Parse(q.body)
	if err != nil {
		return reply{}, err
	}
	if res.ID != q.ID && (res.ID != "" || q.Kind == interaction.Update) {
		return reply{}, newInvalid("The id of the resource does not match the URL.")
	}
	return putBody(s, q, http.MethodPut)
}

// putBody stores the request body as the resource with the request's id.
func putBody(s *Store, q request, method string) (reply, error) {
	res, err := resource.Parse(q.body)
	if err != nil {
		return reply{}, err
	}
	if res.Type != q.Type {
		return reply{}, newInvalid("The resource type of the body does not match the URL.")
	}
	if err := checkVersion(s, q); err != nil {
		return reply{}, err
	}
	status := http.StatusCreated
	if _, ok := s.current(q.reference()); ok {
		status = http.StatusOK
	}
	v, err := s.put(method, q.reference(), q.body, q.base)
	if err != nil {
		return reply{}, err
	}
	response := v.reply(status)
	response.header.Set("Location", q.location(v))
	if strings.Contains(q.header.Get("Prefer"), "return=minimal") {
		response.body = nil
		response.header.Del("Content-Type")
	}
	return response, nil
}

// checkVersion checks If-Match and If-None-Match against the current version (R4 http.html#concurrency).
func checkVersion(s *Store, q request) error {
	v, ok := s.current(q.reference())
	expected := q.header.Get("If-Match")
	if expected != "" && (!ok || v.etag() != expected) || q.header.Get("If-None-Match") == "*" && ok {
		return requestFailure{http.StatusPreconditionFailed, "conflict", "The version does not match, or the resource already exists."}
	}
	return nil
}

// location returns the URL of a version.
func (q request) location(v *version) string {
	return fmt.Sprintf("%s/%s/_history/%d", q.base, v.reference, v.number)
}

// remove handles delete and conditional delete. Deleting a resource that does not exist succeeds.
func remove(s *Store, q request) (reply, error) {
	if q.Kind == interaction.ConditionalDelete {
		v, err := findUnique(s, q)
		if err != nil || v == nil {
			return reply{status: http.StatusNoContent}, err
		}
		q.ID = v.reference.ID
	}
	if err := checkVersion(s, q); err != nil {
		return reply{}, err
	}
	if _, ok := s.current(q.reference()); !ok {
		return reply{status: http.StatusNoContent}, nil
	}
	return reply{status: http.StatusNoContent}, s.remove(q.reference())
}

// findUnique returns the only resource that matches the criteria of a conditional request, or nil if there is none.
func findUnique(s *Store, q request) (*version, error) {
	q.header = nil // disables lenient handling: if a parameter were ignored, all resources would match
	q.Parameters = q.Criteria()
	parsed, err := readQuery(q)
	if err != nil {
		return nil, err
	}
	if len(parsed.criteria) == 0 {
		return nil, newInvalid("The conditional request has no criteria.")
	}
	found, err := s.findMatches(q, parsed)
	switch {
	case err != nil:
		return nil, err
	case len(found) > 1:
		return nil, requestFailure{http.StatusPreconditionFailed, "multiple-matches", "Multiple resources match the criteria."}
	case len(found) == 1:
		return found[0].version, nil
	}
	return nil, nil
}

// maxEntries is the maximum number of entries in a batch or transaction.
const maxEntries = 500

// submission is a batch or transaction.
type submission struct {
	ResourceType, Type string
	Entry              []struct {
		FullURL  string
		Resource json.RawMessage
		Request  struct{ Method, URL, IfMatch, IfNoneMatch, IfNoneExist string }
	}
}

// handleBundle handles a batch or transaction. The caller must hold the store's lock, so that requests see no partial changes.
func handleBundle(s *Store, q request) (reply, error) {
	var b submission
	if err := json.Unmarshal(q.body, &b); err != nil || b.ResourceType != "Bundle" || b.Type != "batch" && b.Type != "transaction" {
		return reply{}, newInvalid("The body is not a Bundle of type batch or transaction.")
	}
	if len(b.Entry) > maxEntries {
		return reply{}, requestFailure{http.StatusRequestEntityTooLarge, "too-costly", "The Bundle has more than " + strconv.Itoa(maxEntries) + " entries."}
	}
	versionCount := len(s.undoLog)
	responses, err := handleEntries(s, q, b)
	if err != nil {
		s.undo(versionCount)
		return reply{}, err
	}
	return bundleJSON{ResourceType: "Bundle", Type: b.Type + "-response", Entry: responses}.reply()
}

// methods lists HTTP methods in the processing order of R4 http.html#trules.
var methods = []string{http.MethodDelete, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodGet, http.MethodHead}

// handleEntries handles the entries in the order of methods.
func handleEntries(s *Store, q request, b submission) ([]entryJSON, error) {
	ids, urns := b.assignIDs()
	responses := make([]entryJSON, len(b.Entry))
	order := make([]int, len(b.Entry))
	for n := range order {
		order[n] = n
	}
	methodOrder := func(n int) uint { return uint(slices.Index(methods, b.Entry[n].Request.Method)) } // unknown methods come last
	slices.SortStableFunc(order, func(m, n int) int { return cmp.Compare(methodOrder(m), methodOrder(n)) })
	for _, n := range order {
		e := b.Entry[n]
		q.id, q.body = ids[n], []byte(urns.Replace(string(e.Resource)))
		response, err := handleEntry(s, q, e.Request.Method, e.Request.URL, http.Header{
			"If-Match": {e.Request.IfMatch}, "If-None-Match": {e.Request.IfNoneMatch}, "If-None-Exist": {e.Request.IfNoneExist},
		})
		if err != nil && (b.Type == "transaction" || q.cancellationError() != nil) {
			f := toFailure(err)
			return nil, requestFailure{f.status, f.code, "Entry " + strconv.Itoa(n) + ": " + f.text}
		}
		if err != nil {
			response = newOutcomeReply(err)
		}
		responses[n] = response.toEntry()
	}
	return responses, nil
}

// assignIDs returns the ids of the resources that a transaction creates, by entry, and a replacer for references to their URNs.
func (b submission) assignIDs() ([]string, *strings.Replacer) {
	ids := make([]string, len(b.Entry))
	var pairs []string
	for n, e := range b.Entry {
		if b.Type != "transaction" || e.Request.Method != http.MethodPost || e.Request.IfNoneExist != "" {
			continue
		}
		if ids[n] = newID(); strings.HasPrefix(e.FullURL, "urn:") {
			pairs = append(pairs, string(quoteJSON(e.FullURL)), string(quoteJSON(e.Request.URL+"/"+ids[n])))
		}
	}
	return ids, strings.NewReplacer(pairs...)
}

// handleEntry handles one entry of a batch or transaction.
func handleEntry(s *Store, q request, method, target string, header http.Header) (reply, error) {
	for name, values := range header {
		if values[0] == "" {
			delete(header, name)
		}
	}
	path, query, _ := strings.Cut(target, "?")
	i, err := interaction.Parse(method, path, query, header)
	switch {
	case err != nil:
		return reply{}, err
	case i.Kind == interaction.Bundle:
		return reply{}, newInvalid("Nested batches and transactions are not supported.")
	case q.cancellationError() != nil:
		return reply{}, q.cancellationError()
	}
	q.Interaction, q.method, q.header = i, method, header
	q.header.Set("Accept", mediaType)
	return handleInteraction(s, q)
}

// toEntry returns the reply as an entry of a response Bundle.
func (p reply) toEntry() entryJSON {
	out := entryJSON{Response: map[string]string{"status": strconv.Itoa(p.status)}, Resource: p.body}
	for member, name := range map[string]string{"location": "Location", "etag": "Etag"} {
		if v := p.header.Get(name); v != "" {
			out.Response[member] = v
		}
	}
	return out
}
