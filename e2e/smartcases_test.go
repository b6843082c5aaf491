package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// smartRow is a row of a table: values by column name.
type smartRow map[string]string

// smartCases runs other servers' tables of expectations about SMART scopes through the gateway in front of HAPI.
type smartCases struct {
	*guarded
	folder           string
	knownDifferences map[string]string // accepted differences: the reason by table and row
	used             map[string]bool
	counts           map[string]map[string]int // number of rows by table and outcome
}

// knownSMARTCases contains one accepted difference per line: table/row, and the reason. A row that ends in * matches all rows
// with that prefix.
const knownSMARTCases = "testdata/smartcases.tsv"

// The tables contain expectations of other projects' suites, which are not part of this module. The folder SMART_CASES contains
// search.tsv, scopes.tsv, export.tsv, gateway.tsv, linuxforhealth.tsv, linuxforhealth-scopes.tsv and fixtures.
func TestSMARTCases(t *testing.T) {
	folder := os.Getenv("SMART_CASES")
	if folder == "" {
		t.Skip("SMART_CASES names no folder with search.tsv, scopes.tsv, export.tsv, gateway.tsv, linuxforhealth.tsv and fixtures")
	}
	c := &smartCases{folder: folder, knownDifferences: map[string]string{}, used: map[string]bool{}, counts: map[string]map[string]int{}}
	for _, row := range c.rows(t, knownSMARTCases) {
		c.knownDifferences[row["case"]] = row["reason"]
	}
	c.guarded = startGuarded(t, "smartcases", startSeparateHAPI(t, "hapi-smartcases").fhirAPI)
	c.loadFixtures(t)
	for _, table := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"search", c.runSearch}, {"scopes", c.runScopes}, {"linuxforhealth", c.runLinuxForHealth}, {"gateway", c.runGateway}, {"export", c.runExport},
	} {
		t.Run(table.name, table.run)
	}
	for _, table := range slices.Sorted(maps.Keys(c.counts)) {
		n := c.counts[table]
		t.Logf("%-15s %4d pass, %3d differ by decision, %3d n/a, %3d fail", table, n["pass"], n["differs"], n["n/a"], n["FAIL"])
	}
	for pattern := range c.knownDifferences {
		table, _, _ := strings.Cut(pattern, "/")
		if !c.used[pattern] && len(c.counts[table]) > 0 {
			t.Errorf("%s is a known difference, but passes or is not a row", pattern)
		}
	}
}

// rows reads a table. Its first line contains the column names.
func (c *smartCases) rows(t *testing.T, file string) []smartRow {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	names := strings.Split(lines[0], "\t")
	var rows []smartRow
	for _, line := range lines[1:] {
		row := smartRow{}
		for i, value := range strings.Split(line, "\t") {
			row[names[i]] = value
		}
		rows = append(rows, row)
	}
	return rows
}

func (c *smartCases) table(t *testing.T, name string) []smartRow {
	t.Helper()
	return c.rows(t, filepath.Join(c.folder, name+".tsv"))
}

// count counts the outcome of a row. fault is empty if the row passes and begins with "n/a:" if it does not apply to a gateway.
func (c *smartCases) count(t *testing.T, table, id, fault string) {
	t.Helper()
	if c.counts[table] == nil {
		c.counts[table] = map[string]int{}
	}
	name := table + "/" + id
	reason := c.reason(name)
	outcome := "pass"
	switch {
	case strings.HasPrefix(fault, "n/a:"):
		outcome = "n/a"
	case fault != "" && reason != "":
		outcome = "differs"
		c.used[reason] = true
	case fault != "":
		outcome = "FAIL"
		t.Errorf("%s: %s", name, fault)
	}
	c.counts[table][outcome]++
}

// reason returns the reason of the accepted difference that matches name, or "".
func (c *smartCases) reason(name string) string {
	if _, ok := c.knownDifferences[name]; ok {
		return name
	}
	for pattern := range c.knownDifferences {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, prefix) {
			return pattern
		}
	}
	return ""
}

// loadFixtures stores all fixtures in one transaction. Of fixtures with the same id, it stores the last one.
func (c *smartCases) loadFixtures(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.folder, "fixtures", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]json.RawMessage{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte(`"Practioner/`), []byte(`"Practitioner/`)) // HAPI rejects the misspelled resource type
		var b struct {
			ResourceType string
			Entry        []struct{ Resource json.RawMessage }
		}
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(err)
		}
		if b.ResourceType != "Bundle" {
			resources[referenceOf(text)] = text
		}
		for _, e := range b.Entry {
			resources[referenceOf(e.Resource)] = e.Resource
		}
	}
	resources["Group/g1"] = json.RawMessage(`{"resourceType":"Group","id":"g1","type":"practitioner","actual":true,"member":[{"entity":{"reference":"Patient/smart-patient-A"}}]}`)
	c.server.putAll(t, resources)
}

// putAll stores resources in one transaction, so that they may reference each other.
func (h fhirAPI) putAll(t *testing.T, resources map[string]json.RawMessage) {
	t.Helper()
	var entries []string
	for reference, text := range resources {
		entries = append(entries, fmt.Sprintf(`{"resource":%s,"request":{"method":"PUT","url":%q}}`, text, reference))
	}
	h.send(t, http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[`+strings.Join(entries, ",")+`]}`).is(t, http.StatusOK)
}

// request sends the request of a row: an optional method (default GET) and a path.
func (c *smartCases) request(t *testing.T, who guardHolder, request, body string, headers ...string) httpResponse {
	t.Helper()
	method, path, ok := strings.Cut(request, " ")
	if !ok {
		method, path = http.MethodGet, request
	}
	return c.send(t, who, method, strings.TrimPrefix(path, "/"), body, headers...)
}

// runSearch runs the searches of Microsoft's table. Each must find exactly the resources in its row.
func (c *smartCases) runSearch(t *testing.T) {
	for _, row := range c.table(t, "search") {
		who := guardHolder{row["scopes"], row["patient"], row["fhir_user"]}
		fault := row["note"]
		if !strings.HasPrefix(fault, "n/a:") {
			fault = c.searched(t, who, row)
		}
		c.count(t, "search", row["id"], fault)
	}
}

func (c *smartCases) searched(t *testing.T, who guardHolder, row smartRow) string {
	t.Helper()
	body := ""
	if strings.HasPrefix(row["request"], "P") && strings.Contains(row["request"], " ") {
		body = `{"resourceType":"Patient","id":"NEW"}`
		c.server.send(t, http.MethodDelete, "Patient/NEW", "")
	}
	first := c.request(t, who, row["request"], body)
	status := fmt.Sprintf("status:%d", first.status)
	want, finds := strings.CutPrefix(row["expect"], "ids:")
	switch {
	case !finds && status == row["expect"], status == "status:403" && strings.Contains(row["note"], "alt: status:403"):
		return ""
	case !finds, first.status != http.StatusOK && first.status != http.StatusNotFound:
		return fmt.Sprintf("%s, want %s: %.300s", status, row["expect"], first.body)
	}
	if got := c.foundBy(t, who, row["request"], first); got != strings.TrimSpace(want) {
		return fmt.Sprintf("%s as %s: found %s, want %s", row["request"], row["scopes"], got, want)
	}
	return ""
}

// foundBy returns all resources in the response first and on its subsequent pages.
func (c *smartCases) foundBy(t *testing.T, who guardHolder, request string, first httpResponse) string {
	t.Helper()
	found := references{}
	if first.status == http.StatusNotFound {
		return ""
	}
	if r := referenceOf(first.body); !strings.HasPrefix(r, "Bundle/") {
		return r
	}
	matches, included, _ := c.pages(t, who, request)
	for _, r := range slices.Concat(matches, included) {
		found[r] = true
	}
	return found.String()
}
