package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/go-json-experiment/json"
)

// terminologyPackage is HL7's terminology package. The comment in e2e/valuesets_test.go contains the command that downloads it.
const terminologyPackage = "../node/packages/hl7.terminology.r4-7.0.1.tgz"

// Each value set can be found by search, and can be read and expanded by its id, as cqframework's terminology provider does.
func TestSearchAndReadByID(t *testing.T) {
	if _, err := os.Stat(terminologyPackage); err != nil {
		t.Skip(err)
	}
	l, err := terminology.Load(t.Context(), definitions.Options{Core: true, Definitions: []string{terminologyPackage}})
	if err != nil {
		t.Fatal(err)
	}
	h := &api.Handler{Library: l}
	wrong := 0
	found := ask(t, h.Search, "/ValueSet?_count=10000&_elements=url,version").Entry
	if len(found) != len(l.Definitions().ValueSets.List) {
		t.Fatalf("%d value sets are found", len(found))
	}
	for _, entry := range found {
		want, id := entry.Resource.named(), entry.Resource.ID
		read := ask(t, h.Read, "/ValueSet/"+id+"?_elements=url,version")
		expanded := ask(t, h.Expand, "/ValueSet/"+id+"/$expand?count=0")
		if read.named() != want || expanded.ResourceType == "ValueSet" && expanded.named() != want {
			wrong++
			t.Logf("%s has the id %s, which reads %s and expands %s", want, id, read.named(), expanded.named())
		}
	}
	if wrong > 0 {
		t.Errorf("%d value sets have another's id", wrong)
	}
}

// responseContent contains the members of a response that identify its content.
type responseContent struct {
	ResourceType, ID, URL, Version string
	Entry                          []struct{ Resource responseContent }
}

func (a responseContent) named() string { return strings.TrimSuffix(a.URL+"|"+a.Version, "|") }

// ask calls an operation of the handler. If the operation returns an error, a is empty.
func ask(t *testing.T, operation func(http.ResponseWriter, *http.Request) error, path string) (a responseContent) {
	t.Helper()
	w := httptest.NewRecorder()
	if err := operation(w, httptest.NewRequest(http.MethodGet, path, nil)); err != nil {
		return a
	}
	if err := json.UnmarshalRead(io.Reader(w.Body), &a, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	return a
}
