package standard_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// ecosystem returns the folder of the HL7 terminology ecosystem's tests, with the program that runs them.
func ecosystem(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("TX_ECOSYSTEM")
	if folder == "" {
		t.Skip("TX_ECOSYSTEM does not name the folder of the HL7 terminology ecosystem's tests")
	}
	return folder
}

// TestEcosystem runs the tests that HL7 has for the servers of its terminology ecosystem.
func TestEcosystem(t *testing.T) {
	terminologytest.Needs(t, "/CodeSystem/$lookup", "/CodeSystem/$validate-code", "/ConceptMap/$translate", "/ValueSet/$batch-validate-code", "/ValueSet/$validate-code")
	folder := ecosystem(t)
	output := runEcosystem(t, folder, strings.Fields(os.Getenv("TX_ECOSYSTEM_ARGUMENTS"))...)
	passed, all := 0, 0
	for _, count := range operationCounts.FindAllStringSubmatch(string(output[max(0, bytes.LastIndex(output, []byte("TOTAL"))):]), -1) {
		n, _ := strconv.Atoi(count[2])
		of, _ := strconv.Atoi(count[3])
		if count[1] == "expand" && n < of {
			t.Errorf("%d of %d tests of $expand pass", n, of)
		}
		passed, all = passed+n, all+of
	}
	if all == 0 || passed*10 < all*9 {
		t.Errorf("%d of %d tests pass", passed, all)
	}
}

// runEcosystem runs tests of a folder, and returns what the program prints.
func runEcosystem(t *testing.T, folder string, arguments ...string) []byte {
	t.Helper()
	server := httptest.NewServer(terminologytest.Serve(&api.Handler{Library: terminologytest.Core(t), Statement: api.Statement{Version: "0.0.0", Released: fixture.Time}}))
	defer server.Close()
	arguments = append([]string{filepath.Join(ecosystem(t), "run.py"), folder, server.URL + "/fhir/R4", "--out", t.TempDir()}, arguments...)
	output, err := exec.CommandContext(t.Context(), "python3", arguments...).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v", arguments, err)
	}
	t.Logf("%s", output)
	return output
}

// TestEcosystemOfSources runs those tests for servers with content that are about the code systems which are here.
func TestEcosystemOfSources(t *testing.T) {
	terminologytest.Needs(t, "/CodeSystem/$lookup", "/CodeSystem/$validate-code", "/ValueSet/$validate-code", "http://unitsofmeasure.org", terminologytest.Languages, "urn:iso:std:iso:3166")
	folder := ecosystem(t) + "-clinical"
	if _, err := os.Stat(folder); err != nil {
		t.Skip(err)
	}
	for _, cases := range []struct {
		suite, test string
		passed      int
		failed      string
	}{
		{"UCUM", "", 5, ""},
		{"bugs", "lang-case", 2, ""},
		{"bugs", "country-code", 1, ""},
		{"bugs", "3166-", 3, ""},
		// The display that it wants for ia ends where IANA's file breaks the line: "Interlingua (International Auxiliary Language".
		{"langcodes", "", 0, "expand-langcodes-all"},
	} {
		output := string(runEcosystem(t, folder, "--modes", "tx.fhir.org", "--suite", cases.suite, "--test", cases.test))
		passed := "TOTAL pass " + strconv.Itoa(cases.passed) + " of"
		if !strings.Contains(output, passed) || !strings.Contains(output, cases.failed) || cases.failed == "" && strings.Contains(output, "FAIL") {
			t.Errorf("%s %s: want %s, failed %q", cases.suite, cases.test, passed, cases.failed)
		}
	}
}

// operationCounts finds an operation in the sum that ends the output, with how many of its tests pass.
var operationCounts = regexp.MustCompile(`'([a-z-]+)': \((\d+), (\d+)\)`)
