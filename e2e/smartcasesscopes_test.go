package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var scopeType = regexp.MustCompile(`(?:patient|user|system)/([A-Za-z*]+)\.([a-z*]*)`)

// withoutScope matches the gateway's error messages for a request that no scope covers.
var withoutScope = regexp.MustCompile(`No scope allows [a-z-]+ of|The token has`)

// runScopes checks the permissions of scopes with one request for each permission.
func (c *smartCases) runScopes(t *testing.T) {
	c.server.send(t, http.MethodPut, "Patient/foo", `{"resourceType":"Patient","id":"foo"}`)
	for _, row := range c.table(t, "scopes") {
		fault := row["note"]
		if !strings.HasPrefix(fault, "n/a:") {
			fault = c.checkScope(t, row)
		}
		c.count(t, "scopes", row["id"], fault)
	}
}

// checkScope checks the permissions for each type in a token's scopes or in its row's expectation. If Microsoft rejects the
// entire token, the token must not grant anything here.
func (c *smartCases) checkScope(t *testing.T, row smartRow) string {
	t.Helper()
	want, grants := strings.CutPrefix(row["expect"], "grant: ")
	if !grants && row["expect"] != "status:400" {
		return "n/a: " + row["expect"]
	}
	who := guardHolder{row["scopes"], strings.TrimPrefix(row["fhir_user"], "Patient/"), row["fhir_user"]}
	types := map[string]string{}
	for _, match := range scopeType.FindAllStringSubmatch(row["scopes"], -1) {
		types[match[1]] = ""
	}
	for _, match := range scopeType.FindAllStringSubmatch(want, -1) {
		if grants {
			types[match[1]] += match[2]
		}
	}
	for resourceType, letters := range types {
		if resourceType == "*" || !slices.Contains([]string{"Patient", "Observation", "Encounter", "Condition"}, resourceType) {
			resourceType = "Observation"
		}
		for _, letter := range "cruds" {
			got := c.permits(t, who, resourceType, letter)
			if got != strings.ContainsRune(letters, letter) {
				return fmt.Sprintf("%c of %s is %v, want %s", letter, resourceType, got, row["expect"])
			}
		}
	}
	return ""
}

// permits reports whether some scope covers an interaction, regardless of the result of the request.
func (c *smartCases) permits(t *testing.T, who guardHolder, resourceType string, letter rune) bool {
	t.Helper()
	body := fmt.Sprintf(`{"resourceType":%q,"id":"none"}`, resourceType)
	var a httpResponse
	switch letter {
	case 'c':
		a = c.send(t, who, http.MethodPost, resourceType, body)
	case 'r':
		a = c.send(t, who, http.MethodGet, resourceType+"/nobodys", "")
	case 'u':
		a = c.send(t, who, http.MethodPut, resourceType+"/none", body)
	case 'd':
		a = c.send(t, who, http.MethodDelete, resourceType+"/nobodys", "")
	case 's':
		a = c.send(t, who, http.MethodGet, resourceType+"?_count=1", "")
	}
	return a.status != http.StatusForbidden || !withoutScope.Match(a.body)
}

// runExport starts the exports in Microsoft's table, and follows those that are permitted until they are complete.
func (c *smartCases) runExport(t *testing.T) {
	for _, row := range c.table(t, "export") {
		fault := row["note"]
		if !strings.HasPrefix(fault, "n/a:") {
			fault = c.exported(t, row)
		}
		c.count(t, "export", row["id"], fault)
	}
}

func (c *smartCases) exported(t *testing.T, row smartRow) string {
	t.Helper()
	who := guardHolder{row["scopes"], "smart-patient-A", "Patient/smart-patient-A"}
	request, ofJob := row["request"], strings.Contains(row["request"], "status URL")
	if ofJob {
		request = jobRequest(row["request"])
	}
	starter := who
	if ofJob && row["expect"] == "status:403" {
		starter.scope = "system/*.rs"
	}
	began := c.request(t, starter, request, "", "Prefer", "respond-async")
	refused := began.status == http.StatusForbidden
	status := began.header.Get("Content-Location")
	if ofJob && !refused {
		job := c.send(t, who, http.MethodGet, status, "")
		refused = job.status == http.StatusForbidden || job.status == http.StatusNotFound
	}
	if refused != (row["expect"] == "status:403") || !refused && began.status != http.StatusAccepted {
		return fmt.Sprintf("%s as %s: %d, want %s: %.300s", request, row["scopes"], began.status, row["expect"], began.body)
	}
	if refused {
		return ""
	}
	return c.checkExported(t, who, status, row["expect"])
}

// jobRequest returns the kick-off request for the row.
func jobRequest(about string) string {
	switch {
	case strings.Contains(about, "Group job"):
		return "GET Group/g1/$export?_type=Patient"
	case strings.Contains(about, "Patient-level"):
		return "GET Patient/$export?_type=Observation"
	case strings.Contains(about, "without _type"):
		return "GET $export"
	case strings.Contains(about, "narrowed"), strings.Contains(about, "also lists Observation"):
		return "GET $export?_type=Observation,Patient"
	}
	return "GET $export?_type=Patient"
}

// checkExported waits until an export is complete and checks the resource types of its files.
func (c *smartCases) checkExported(t *testing.T, who guardHolder, status, expect string) string {
	t.Helper()
	_, types, _ := strings.Cut(expect, "types:")
	deadline := time.Now().Add(30 * time.Second)
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	a := c.send(t, who, http.MethodGet, status, "")
	for ; a.status == http.StatusAccepted && time.Now().Before(deadline); a = c.send(t, who, http.MethodGet, status, "") {
		<-ticker.C
	}
	if a.status != http.StatusOK {
		return fmt.Sprintf("the job ends with %d: %.300s", a.status, a.body)
	}
	var end struct{ Output []struct{ Type, URL string } }
	a.decode(t, &end)
	for _, file := range end.Output {
		if types != "" && types != "all" && !slices.Contains(strings.Split(types, ","), file.Type) {
			return fmt.Sprintf("a file of %s, want %s", file.Type, types)
		}
		if got := c.send(t, who, http.MethodGet, file.URL, ""); got.status != http.StatusOK {
			return fmt.Sprintf("the file at %.60s is answered with %d: %.300s", file.URL, got.status, got.body)
		}
	}
	if len(end.Output) == 0 && types != "" {
		return "no files"
	}
	return ""
}
