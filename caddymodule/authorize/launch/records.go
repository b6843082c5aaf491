package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// Records asks the FHIR server, as a gateway does for a client: nothing comes out that the
// scopes of who asks do not cover.
type Records interface {
	// Get returns the body of a read or search, such as Patient?name=ada. Its error is
	// [ErrNoRecord] if the answer is that there is no such resource, or that it may not be
	// seen.
	Get(ctx context.Context, by Reader, path string, query url.Values) ([]byte, error)
}

// Reader is in whose name records are asked for, as in an access token.
type Reader struct {
	Subject  string // the sub
	FHIRUser string // the person's own resource, absolute
	Scope    string // SMART scopes
	Patient  string // the patient that patient/ scopes are bound to

	tokenclaim.Attributes
}

// ErrNoRecord says that a resource does not exist, or may not be seen: nobody can tell which.
var ErrNoRecord = errors.New("no such record, or none that the person may see")

// read reads a resource or a Bundle into value.
func read(ctx context.Context, records Records, by Reader, path string, query url.Values, value any) error {
	if records == nil {
		return errors.New("no FHIR server to ask")
	}
	body, err := records.Get(ctx, by, path, query)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	if err := json.Unmarshal(body, value); err != nil {
		return fmt.Errorf("reading the answer to %s: %w", path, err)
	}
	return checkType(path, body)
}

// checkType refuses an answer that is neither the resource that was read nor, of a search, a
// Bundle: null is not nobody.
func checkType(path string, body []byte) error {
	want := "Bundle"
	if resourceType, _, ok := strings.Cut(path, "/"); ok {
		want = resourceType
	}
	var answer struct {
		ResourceType string `json:"resourceType"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.ResourceType != want {
		return fmt.Errorf("the answer to %s is no %s", path, want)
	}
	return nil
}

// bundle is a searchset of resources of one kind.
type bundle[T any] struct {
	ResourceType string `json:"resourceType"`
	Entry        []struct {
		Resource readable[T] `json:"resource"`
	} `json:"entry"`
	Link []struct {
		Relation string `json:"relation"`
	} `json:"link"`
}

// readable is a resource, or nothing if it cannot be read: one that is malformed must not
// keep people from the others.
type readable[T any] struct{ value T }

// UnmarshalJSON implements [json.Unmarshaler].
func (r *readable[T]) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &r.value); err != nil {
		r.value = *new(T)
	}
	return nil
}

// resources returns those of a bundle, at most as many as a page shows, and whether there are
// more.
func (b *bundle[T]) resources(most int) (found []T, more bool) {
	for _, e := range b.Entry {
		if len(found) == most {
			return found, true
		}
		found = append(found, e.Resource.value)
	}
	for _, l := range b.Link {
		more = more || l.Relation == "next"
	}
	return found, more
}
