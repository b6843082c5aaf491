package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// lfhID is the id of the patient and of all other resources in LinuxForHealth's tests.
const lfhID = "11111111-1111-1111-1111-111111111111"

// lfhResources are the resources that LinuxForHealth's table uses. Resources with the same id are stored one at a time.
var lfhResources = map[string]string{
	"Patient":              `{"resourceType":"Patient","id":"` + lfhID + `"}`,
	"Observation":          `{"resourceType":"Observation","id":"` + lfhID + `","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/` + lfhID + `"}}`,
	"Condition":            `{"resourceType":"Condition","id":"` + lfhID + `","code":{"text":"x"},"subject":{"reference":"Patient/` + lfhID + `/_history/1"}}`,
	"Binary":               `{"resourceType":"Binary","id":"` + lfhID + `","contentType":"text/plain","data":"eA=="}`,
	"Provenance (target P": `{"resourceType":"Provenance","id":"` + lfhID + `","target":[{"reference":"Patient/` + lfhID + `"}],"recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"display":"x"}}]}`,
	"Provenance (target O": `{"resourceType":"Provenance","id":"` + lfhID + `","target":[{"reference":"Observation/` + lfhID + `"}],"recorded":"2020-01-01T00:00:00Z","agent":[{"who":{"display":"x"}}]}`,
}

// runLinuxForHealth runs each row of the table with each row of its set of scopes.
func (c *smartCases) runLinuxForHealth(t *testing.T) {
	scopes := c.table(t, "linuxforhealth-scopes")
	for _, row := range c.table(t, "linuxforhealth") {
		if len(row["scopes"]) > 1 {
			c.count(t, "linuxforhealth", row["id"], c.linuxForHealth(t, row, smartRow{"scopes": row["scopes"], "patient": lfhID}))
			continue
		}
		for _, s := range scopes {
			if s["set"] == row["scopes"] {
				c.count(t, "linuxforhealth", row["id"]+"/"+s["id"], c.linuxForHealth(t, row, s))
			}
		}
	}
}

// linuxForHealth sends a row's request with the given scopes. It returns the fault in the response, or "".
func (c *smartCases) linuxForHealth(t *testing.T, row, scopes smartRow) string {
	t.Helper()
	want, na := lfhExpected(row, scopes)
	if na != "" {
		return na
	}
	c.storeLinuxForHealth(t, row)
	who := guardHolder{scopes["scopes"], scopes["patient"], "Practitioner/smart-practitioner-A"}
	request, headers := lfhRequest(row)
	body := ""
	if method, _, _ := strings.Cut(request, " "); method == http.MethodPost || method == http.MethodPut {
		resourceType, _, _ := strings.Cut(row["resource"], "/")
		body = lfhResources[strings.Fields(resourceType)[0]]
	}
	a := c.request(t, who, request, body, headers...)
	got := a.status/100 == 2
	if row["interaction"] == "search-response" && got {
		return lfhFiltered(a, row, scopes)
	}
	if got != want {
		return fmt.Sprintf("%s as %s (patient %.4s): %d, want allowed %v: %.300s", request, scopes["scopes"], scopes["patient"], a.status, want, a.body)
	}
	return ""
}

// lfhExpected reports whether the scopes allow a row's request. na is the reason if the row does not apply to a gateway.
func lfhExpected(row, scopes smartRow) (allowed bool, na string) {
	expect := row["expect"]
	context, _, _ := strings.Cut(scopes["scopes"], "/")
	switch {
	case strings.HasPrefix(row["note"], "n/a:"):
		return false, row["note"]
	case expect == "not pinned", strings.HasPrefix(expect, "error:"):
		return false, "n/a: " + expect
	case strings.HasPrefix(row["interaction"], "update") && scopes["perms"] == "w":
		return false, "n/a: SMART's update needs u alone"
	case strings.HasPrefix(expect, "patient/:"):
		forPatient, otherwise, _ := strings.Cut(strings.TrimPrefix(expect, "patient/:"), "; user/ and system/:")
		if context != "patient" {
			forPatient = otherwise
		}
		return strings.HasPrefix(strings.TrimSpace(forPatient), "allowed"), ""
	case strings.HasPrefix(expect, "allowed if"):
		return lfhCovered(row["needs"], scopes), ""
	}
	return expect == "allowed", ""
}

// lfhCovered reports whether the scopes include all permissions in needs, which have the form Type:permissions.
func lfhCovered(needs string, scopes smartRow) bool {
	for need := range strings.SplitSeq(needs, ",") {
		resourceType, permissions, _ := strings.Cut(need, ":")
		if scopes["types"] != "*" && !strings.Contains(","+scopes["types"]+",", ","+resourceType+",") {
			return false
		}
		for _, p := range permissions {
			if !strings.ContainsRune(scopes["perms"], p) {
				return false
			}
		}
	}
	return true
}

// lfhRequest returns a row's request. If the row contains only a search response, the request is a search with that result.
func lfhRequest(row smartRow) (request string, headers []string) {
	request = row["request"]
	if strings.Contains(request, "return=minimal") {
		headers = []string{"Prefer", "return=minimal"}
	}
	if strings.Contains(row["interaction"], "$export") {
		headers = []string{"Prefer", "respond-async"}
	}
	if row["interaction"] != "search-response" {
		request, _, _ = strings.Cut(request, " (")
		return strings.Replace(request, "PUT Binary/x", "PUT Binary/"+lfhID, 1), headers
	}
	types := strings.Split(row["id"], "-")[2:]
	name := func(of string) string { return strings.ToUpper(of[:1]) + of[1:] }
	request = "GET " + name(types[0]) + "?_id=" + lfhID
	if len(types) > 1 {
		by := map[string]string{"observation": "subject", "provenance": "target"}[types[1]]
		request += "&_revinclude=" + name(types[1]) + ":" + by
	}
	return request, headers
}

// lfhFiltered checks that a response contains exactly the resources that the scopes cover.
func lfhFiltered(a httpResponse, row, scopes smartRow) string {
	var page searchPage
	if err := json.Unmarshal(a.body, &page); err != nil {
		return err.Error()
	}
	visible := map[string]bool{}
	for _, e := range page.Entry {
		resourceType, _, _ := strings.Cut(referenceOf(e.Resource), "/")
		visible[resourceType] = true
	}
	for need := range strings.SplitSeq(row["needs"], ",") {
		resourceType, _, _ := strings.Cut(need, ":")
		if all := lfhCovered(row["needs"], scopes); visible[resourceType] && !lfhCovered(need, scopes) || all && !visible[resourceType] {
			return fmt.Sprintf("shows %v under %s: %.300s", visible, scopes["scopes"], a.body)
		}
	}
	return ""
}

// storeLinuxForHealth stores all resources. If a row deletes, the resources that reference the Patient are stored again: HAPI
// deletes a Patient that others reference, and does not index these references again even if the Patient is stored again.
func (c *smartCases) storeLinuxForHealth(t *testing.T, row smartRow) {
	t.Helper()
	all := map[string]json.RawMessage{
		"Encounter/good": json.RawMessage(`{"resourceType":"Encounter","id":"good","status":"finished","class":{"code":"AMB"},"subject":{"reference":"Patient/` + lfhID + `"}}`),
		"Encounter/bad":  json.RawMessage(`{"resourceType":"Encounter","id":"bad","status":"finished","class":{"code":"AMB"}}`),
	}
	for name, text := range lfhResources {
		if name[:2] == "Pr" && (strings.Contains(row["resource"], "target Observation") || strings.HasSuffix(row["id"], "observation-provenance")) != strings.HasSuffix(name, "O") {
			continue
		}
		all[referenceOf([]byte(text))] = json.RawMessage(text)
	}
	if row["interaction"] == "delete" {
		for reference := range all {
			c.server.send(t, http.MethodDelete, reference, "")
		}
	}
	c.server.putAll(t, all)
}
