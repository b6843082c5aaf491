package paging

import (
	"errors"
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// The next page must be below the FHIR server's base and differ from the current page.
func TestNext(t *testing.T) {
	t.Parallel()
	const self = "http://x/fhir/Patient?_count=1"
	for name, tt := range map[string]struct {
		at   BranchPosition
		next string
		want BranchPosition
		ok   bool
	}{
		"none":                       {BranchPosition{}, "", BranchPosition{IsDone: true}, true},
		"the first link":             {BranchPosition{}, "http://x/fhir?page=2", BranchPosition{Query: "page=2"}, true},
		"the next link":              {BranchPosition{Query: "page=2"}, "http://x/fhir?page=3", BranchPosition{Query: "page=3"}, true},
		"the same query elsewhere":   {BranchPosition{Query: "page=2"}, "http://x/fhir/Patient?page=2", BranchPosition{Path: "Patient", Query: "page=2"}, true},
		"the page itself":            {BranchPosition{Query: "page=2"}, "http://x/fhir?page=2", BranchPosition{}, false},
		"the base":                   {BranchPosition{Query: "page=2"}, "http://x/fhir", BranchPosition{}, false},
		"a path outside of the base": {BranchPosition{Query: "page=2"}, "http://x/admin?page=3", BranchPosition{}, false},
	} {
		got, err := tt.at.Next(message.Links{{Relation: "self", URL: self}, {Relation: "next", URL: tt.next}}, message.NewGet("Patient", "_count=1"))
		if (err == nil) != tt.ok || got.Path != tt.want.Path || got.Query != tt.want.Query || got.IsDone != tt.want.IsDone {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A link outside of the FHIR server's base is not sealed.
func TestSealLinks(t *testing.T) {
	t.Parallel()
	x := Pages{Sealing: bindingSealing{}, Addresses: message.Addresses{Base: "https://gateway.example/fhir"}}
	for next, ok := range map[string]bool{"http://x/fhir?page=2": true, "http://x/fhir": false, "http://x/admin?page=2": false, "http://x/fhirx/Patient?page=2": false} {
		links := message.Links{{Relation: "self", URL: "http://x/fhir/Patient?_count=1"}, {Relation: "next", URL: next}}
		got, err := x.SealLinks(t.Context(), message.NewGet("Patient", "_count=1"), "Patient", links)
		if ok && (err != nil || len(got) != 2) || !ok && !errors.Is(err, ErrForeignLink) {
			t.Errorf("%s: %v, %v", next, got, err)
		}
	}
}

func TestRefusePaging(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{
		"_count": 0, "subject": 0, "_getpages": http.StatusForbidden, "_GetPages": http.StatusForbidden, "page:exact": http.StatusForbidden, "ct:": http.StatusForbidden,
	} {
		if err := RejectPagingLinks([]smart.Parameter{{Name: "_sort", Value: "date"}, {Name: name, Value: "1"}}); statusOf(err) != status {
			t.Errorf("%s: %v", name, err)
		}
	}
}
