package sample

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// create answers create and conditional create.
func create(s *Store, q request) (reply, error) {
	if q.Kind == interaction.ConditionalCreate {
		v, err := one(s, q)
		switch {
		case err != nil:
			return reply{}, err
		case v != nil:
			answer := v.reply(http.StatusOK)
			answer.header.Set("Location", q.location(v))
			return answer, nil
		}
	}
	if q.ID = q.id; q.ID == "" {
		q.ID = newID()
	}
	return putBody(s, q, http.MethodPost)
}

// update answers update and conditional update, which create what is not there.
func update(s *Store, q request) (reply, error) {
	if q.Kind == interaction.ConditionalUpdate {
		v, err := one(s, q)
		switch {
		case err != nil:
			return reply{}, err
		case v == nil:
			q.Interaction = interaction.Interaction{Kind: interaction.Create, Type: q.Type}
			return create(s, q)
		}
		q.ID = v.of.ID
	}
	res, err := resource.Parse(q.body)
	if err != nil {
		return reply{}, err
	}
	if res.ID != q.ID && (res.ID != "" || q.Kind == interaction.Update) {
		return reply{}, invalid("The id of the resource is not that of the URL.")
	}
	return putBody(s, q, http.MethodPut)
}

// put stores the body under the id of the request.
func putBody(s *Store, q request, method string) (reply, error) {
	res, err := resource.Parse(q.body)
	if err != nil {
		return reply{}, err
	}
	if res.Type != q.Type {
		return reply{}, invalid("The body is not of the type in the URL.")
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
	answer := v.reply(status)
	answer.header.Set("Location", q.location(v))
	if strings.Contains(q.header.Get("Prefer"), "return=minimal") {
		answer.body = nil
		answer.header.Del("Content-Type")
	}
	return answer, nil
}

// checkVersion compares the version that the client knows with the one that is there (R4 http.html#concurrency).
func checkVersion(s *Store, q request) error {
	v, ok := s.current(q.reference())
	want := q.header.Get("If-Match")
	if want != "" && (!ok || v.etag() != want) || q.header.Get("If-None-Match") == "*" && ok {
		return failure{http.StatusPreconditionFailed, "conflict", "The resource has another version, or exists already."}
	}
	return nil
}

// location is the address of a version.
func (q request) location(v *version) string {
	return fmt.Sprintf("%s/%s/_history/%d", q.base, v.of, v.number)
}

// remove answers delete and conditional delete. What is not there is as good as deleted.
func remove(s *Store, q request) (reply, error) {
	if q.Kind == interaction.ConditionalDelete {
		v, err := one(s, q)
		if err != nil || v == nil {
			return reply{status: http.StatusNoContent}, err
		}
		q.ID = v.of.ID
	}
	if err := checkVersion(s, q); err != nil {
		return reply{}, err
	}
	if _, ok := s.current(q.reference()); !ok {
		return reply{status: http.StatusNoContent}, nil
	}
	return reply{status: http.StatusNoContent}, s.remove(q.reference())
}

// one is the one resource that matches the criteria of a conditional request, or nil.
func one(s *Store, q request) (*version, error) {
	q.header = nil // what is not supported would match all, so it is never passed over
	q.Parameters = q.Criteria()
	asked, err := readQuery(q)
	if err != nil {
		return nil, err
	}
	if len(asked.criteria) == 0 {
		return nil, invalid("There are no criteria.")
	}
	found, err := s.matches(q, asked)
	switch {
	case err != nil:
		return nil, err
	case len(found) > 1:
		return nil, failure{http.StatusPreconditionFailed, "multiple-matches", "Several resources match the criteria."}
	case len(found) == 1:
		return found[0].version, nil
	}
	return nil, nil
}
