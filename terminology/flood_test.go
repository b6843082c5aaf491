package terminology

import (
	"context"
	"strconv"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// single is a Source with a single value set.
type single struct{}

func (single) Definitions(_ context.Context, m outcome.MissingDefinition) ([]jsontext.Value, error) {
	if m.Canonical != "http://x/vs" {
		return nil, nil
	}
	return []jsontext.Value{jsontext.Value(`{"resourceType":"ValueSet","url":"http://x/vs","status":"active",
		"compose":{"include":[{"system":"http://x/cs","concept":[{"code":"a"}]}]}}`)}, nil
}

// TestFetchedFlood checks that requests for nonexistent definitions are limited and don't evict an existing one.
func TestFetchedFlood(t *testing.T) {
	base, err := Load(t.Context(), definitions.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &FetchedDefinitions{Source: single{}}
	f.Overlay(base)
	for i := range maxAbsent + 100 {
		m := outcome.MissingDefinition{ResourceType: "ValueSet", Canonical: "http://x/vs"}
		if i > 0 {
			m.Canonical += strconv.Itoa(i)
		}
		if _, err := f.Complete(t.Context(), []outcome.MissingDefinition{m}); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := f.CacheUsage(); n != 1 {
		t.Errorf("holds %d", n)
	}
	if n, _ := f.items.absent.Size(); n != maxAbsent {
		t.Errorf("remembers %d", n)
	}
}
