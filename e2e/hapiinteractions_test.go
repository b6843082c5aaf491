package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// bundle contains the members of a Bundle that the tests use.
type bundle struct {
	Type string
	Link []struct{ Relation, URL string }

	Entry []struct {
		Resource struct{ ResourceType, ID string }
		Response struct{ Status, Location string }
	}
}

// put stores resources with the given ids.
func (h *hapi) put(t *testing.T, resources map[string]string) {
	t.Helper()
	for path, members := range resources {
		resourceType, id, _ := strings.Cut(path, "/")
		h.send(t, http.MethodPut, path, `{"resourceType":"`+resourceType+`","id":"`+id+`",`+members+`}`).is(t, http.StatusCreated)
	}
}

// found returns the sorted references of the resources that a search or a history returns.
func (h *hapi) found(t *testing.T, path string) []string {
	t.Helper()
	var b bundle
	h.send(t, http.MethodGet, path, "").is(t, http.StatusOK).decode(t, &b)
	var found []string
	for _, entry := range b.Entry {
		found = append(found, entry.Resource.ResourceType+"/"+entry.Resource.ID)
	}
	slices.Sort(found)
	return found
}

// Ids may consist of digits, letters, or both.
func TestHAPISearch(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	h.put(t, map[string]string{"Organization/clinic": `"name":"Clinic"`})
	h.put(t, map[string]string{
		"Patient/4711":  `"name":[{"family":"Searched"}],"managingOrganization":{"reference":"Organization/clinic"}`,
		"Patient/other": `"name":[{"family":"Other"}]`,
	})
	h.put(t, map[string]string{
		"Observation/pulse":  `"status":"final","code":{"coding":[{"code":"8867-4"}]},"subject":{"reference":"Patient/4711"}`,
		"Observation/weight": `"status":"final","code":{"coding":[{"code":"29463-7"}]},"subject":{"reference":"Patient/4711"}`,
	})
	for _, test := range []struct{ name, path, want string }{
		{"all", "Observation?subject=Patient/4711", "Observation/pulse Observation/weight"},
		{"include", "Observation?_id=pulse&_include=Observation:subject", "Observation/pulse Patient/4711"},
		{
			"include:iterate", "Observation?_id=pulse&_include=Observation:subject&_include:iterate=Patient:organization",
			"Observation/pulse Organization/clinic Patient/4711",
		},
		{"revinclude", "Patient?_id=4711&_revinclude=Observation:subject", "Observation/pulse Observation/weight Patient/4711"},
		{
			"revinclude:iterate", "Organization?_id=clinic&_revinclude=Patient:organization&_revinclude:iterate=Observation:subject",
			"Observation/pulse Observation/weight Organization/clinic Patient/4711",
		},
		{"has", "Patient?_has:Observation:subject:code=8867-4&_id=4711,other", "Patient/4711"},
		{"chain", "Observation?subject:Patient.family=Searched&code=8867-4", "Observation/pulse"},
		{"chain of two", "Observation?subject:Patient.organization.name=Clinic&code=29463-7", "Observation/weight"},
		{"everything", "Patient/4711/$everything", "Observation/pulse Observation/weight Organization/clinic Patient/4711"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(h.found(t, test.path), " "); got != test.want {
				t.Errorf("found %s, want %s", got, test.want)
			}
		})
	}
	t.Run("compartment", func(t *testing.T) {
		t.Parallel()
		h.send(t, http.MethodGet, "Patient/4711/Observation", "").is(t, http.StatusBadRequest).isOutcome(t)
	})
}

// The URL of a next link is opaque and contains no resource type.
func TestHAPIPages(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	h.put(t, map[string]string{"Device/page-1": `"status":"active"`, "Device/page-2": `"status":"active"`})
	var first bundle
	h.send(t, http.MethodGet, "Device?_id=page-1,page-2&_count=1", "").is(t, http.StatusOK).decode(t, &first)
	if len(first.Entry) != 1 || len(first.Link) != 2 || first.Link[1].Relation != "next" {
		t.Fatalf("%+v, want an entry and a link to the next page", first)
	}
	path, ok := strings.CutPrefix(first.Link[1].URL, h.base)
	if !ok || !strings.HasPrefix(path, "?_getpages=") {
		t.Errorf("the next page is at %s", first.Link[1].URL)
	}
	var second bundle
	send(t, http.DefaultClient, newRequest(t, http.MethodGet, first.Link[1].URL, "")).is(t, http.StatusOK).decode(t, &second)
	if len(second.Entry) != 1 || second.Entry[0].Resource.ID == first.Entry[0].Resource.ID {
		t.Errorf("the next page has %+v, the first had %+v", second.Entry, first.Entry)
	}
}

func TestHAPIForwarded(t *testing.T) {
	t.Parallel()
	var b bundle
	hapiServer(t).send(t, http.MethodGet, "Device?_count=1", "", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "fhir.example").
		is(t, http.StatusOK).decode(t, &b)
	if want := "https://fhir.example/fhir/Device?_count=1"; b.Link[0].URL != want {
		t.Errorf("self is %s, want %s", b.Link[0].URL, want)
	}
}

func TestHAPIHistory(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	h.put(t, map[string]string{"Location/history": `"name":"old"`})
	h.send(t, http.MethodPut, "Location/history", `{"resourceType":"Location","id":"history","name":"new"}`).is(t, http.StatusOK)
	for path, atLeast := range map[string]int{"Location/history/_history": 2, "Location/_history": 2, "_history?_count=200": 2} {
		found := slices.DeleteFunc(h.found(t, path), func(r string) bool { return r != "Location/history" })
		if len(found) < atLeast {
			t.Errorf("%s has %d versions, want %d", path, len(found), atLeast)
		}
	}
	var old struct{ Name string }
	h.send(t, http.MethodGet, "Location/history/_history/1", "").is(t, http.StatusOK).decode(t, &old)
	if old.Name != "old" {
		t.Errorf("version 1 is called %q", old.Name)
	}
}

func TestHAPIPatch(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	h.put(t, map[string]string{"Medication/patched": `"status":"active"`})
	for _, test := range []struct{ name, mediaType, patch, want string }{
		{"JSON Patch", "application/json-patch+json", `[{"op":"replace","path":"/status","value":"inactive"}]`, "inactive"},
		{
			"FHIRPath Patch", "application/fhir+json",
			`{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"replace"},` +
				`{"name":"path","valueString":"Medication.status"},{"name":"value","valueCode":"active"}]}]}`, "active",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got struct{ Status string }
			h.send(t, http.MethodPatch, "Medication/patched", test.patch, "Content-Type", test.mediaType).
				is(t, http.StatusOK).decode(t, &got)
			if got.Status != test.want {
				t.Errorf("status %q, want %q", got.Status, test.want)
			}
		})
	}
}

func TestHAPIBundles(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	for _, test := range []struct{ bundleType, entries, want string }{
		{
			"transaction", `{"resource":{"resourceType":"Group","id":"both","type":"person","actual":true},` +
				`"request":{"method":"PUT","url":"Group/both"}},{"request":{"method":"GET","url":"Group/both"}}`,
			"201 Created, 200 OK",
		},
		{
			"batch", `{"request":{"method":"GET","url":"Group/none"}},{"request":{"method":"DELETE","url":"Group/both"}}`,
			"404 Not Found, 204 No Content",
		},
	} {
		t.Run(test.bundleType, func(t *testing.T) {
			var b bundle
			h.send(t, http.MethodPost, "", `{"resourceType":"Bundle","type":"`+test.bundleType+`","entry":[`+test.entries+`]}`).
				is(t, http.StatusOK).decode(t, &b)
			var statuses []string
			for _, entry := range b.Entry {
				statuses = append(statuses, entry.Response.Status)
			}
			if got := strings.Join(statuses, ", "); got != test.want || b.Type != test.bundleType+"-response" {
				t.Errorf("%s with %s, want %s", b.Type, got, test.want)
			}
		})
	}
}

func TestHAPIConditional(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	const resource, criteria = `{"resourceType":"Substance","description":"x","identifier":[{"value":"conditional"}],"code":{"text":"x"}}`, "identifier=conditional"
	for _, test := range []struct {
		name, method, path, body, header string
		want                             int
	}{
		{"create", http.MethodPost, "Substance", resource, criteria, http.StatusCreated},
		{"create again", http.MethodPost, "Substance", resource, criteria, http.StatusOK},
		{"update", http.MethodPut, "Substance?" + criteria, resource, "", http.StatusOK},
		{"create without a condition", http.MethodPost, "Substance", resource, "", http.StatusCreated},
		{"update of two", http.MethodPut, "Substance?" + criteria, resource, "", http.StatusPreconditionFailed},
		{"delete of two", http.MethodDelete, "Substance?" + criteria, "", "", http.StatusOK},
	} {
		t.Run(test.name, func(t *testing.T) {
			h.send(t, test.method, test.path, test.body, "If-None-Exist", test.header).is(t, test.want)
		})
	}
	if remaining := h.found(t, "Substance?"+criteria); remaining != nil {
		t.Errorf("remaining resources: %s", remaining)
	}
}

func TestHAPIOperations(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	h.put(t, map[string]string{"Basic/meta": `"code":{"text":"x"},"meta":{"tag":[{"code":"tagged"}]}`})
	for _, test := range []struct{ name, method, path, body, want string }{
		{"meta", http.MethodGet, "Basic/meta/$meta", "", `"code":"tagged"`},
		{"validate", http.MethodPost, "Basic/$validate", `{"resourceType":"Basic"}`, "Basic.code: minimum required = 1"},
		{"graphql", http.MethodGet, "Basic/meta/$graphql?query=%7Bcode%7Btext%7D%7D", "", `"text":"x"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if a := h.send(t, test.method, test.path, test.body); !strings.Contains(string(a.body), test.want) {
				t.Errorf("status %d without %q: %s", a.status, test.want, a.body)
			}
		})
	}
}

// The export of one patient contains the patient and the resources in the patient's compartment.
func TestHAPIExport(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	h.put(t, map[string]string{"Patient/exported": `"active":true`})
	h.put(t, map[string]string{"Condition/exported": `"subject":{"reference":"Patient/exported"}`})
	exported := h.export(t, "Patient/exported/$export")
	if len(exported) != 2 {
		t.Errorf("files of %d types, want Patient and Condition", len(exported))
	}
	for resourceType, lines := range exported {
		if !strings.Contains(lines, `{"resourceType":"`+resourceType+`","id":"exported"`) {
			t.Errorf("the file of %s has %s", resourceType, lines)
		}
	}
}

// export starts an export, waits until it is complete and returns the files by resource type.
func (h *hapi) export(t *testing.T, path string) map[string]string {
	t.Helper()
	status := h.send(t, http.MethodGet, path, "", "Prefer", "respond-async").is(t, http.StatusAccepted).header.Get("Content-Location")
	var end struct {
		Output []struct{ Type, URL string }
	}
	h.ended(t, status).is(t, http.StatusOK).decode(t, &end)
	files := map[string]string{}
	for _, file := range end.Output {
		files[file.Type] = string(send(t, http.DefaultClient, newRequest(t, http.MethodGet, file.URL, "")).is(t, http.StatusOK).body)
	}
	return files
}

// ended waits until an export is complete and returns the last status response.
func (h *hapi) ended(t *testing.T, status string) httpResponse {
	t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(30 * time.Second)
	for {
		a := send(t, http.DefaultClient, newRequest(t, http.MethodGet, status, ""))
		if a.status != http.StatusAccepted {
			return a
		}
		select {
		case <-deadline:
			t.Fatalf("still at work: %s", a.header.Get("X-Progress"))
		case <-ticker.C:
		}
	}
}
