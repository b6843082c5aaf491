package enforce_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// TestAttachmentUnbound is over writes of a DocumentReference that a grant without a patient allows, be it by a policy or by
// another scope: none opens a Binary of a token that may read those of a patient only.
func TestAttachmentUnbound(t *testing.T) {
	t.Parallel()
	staff := interaction.Reference{Type: "Practitioner", ID: "alice"}
	opening, moving := note("w", "clinical-note", "Patient/a", "", "Binary/n"), note("other", "clinical-note", "Patient/a", "", "Binary/his")
	for _, tt := range []struct {
		name, rule, scope string
		refused           bool
	}{
		{"a policy for resources", `allow request.interaction != 'read' && resource.resourceType == 'DocumentReference'`, "patient/*.rs", true},
		{"a policy for requests", `allow request.type == 'DocumentReference' && request.interaction != 'read'`, "patient/*.rs", true},
		{"a policy beside scopes to write", `allow request.interaction != 'read' && resource.resourceType == 'DocumentReference'`, "patient/*.cruds", true},
		{"a scope for all documents", "", "user/DocumentReference.cruds patient/Binary.rs", true},
		{"a scope for all documents, of a category", "", "user/DocumentReference.cruds?category=clinical-note patient/Binary.rs", true},
		{"scopes to search everything", "", "user/*.s user/DocumentReference.cruds patient/Binary.rs", false}, // Binaries, too
		{"a scope to read all Binaries", "", "user/DocumentReference.cruds user/Binary.r patient/*.rs", false},
		{"a scope to create Binaries", "", "user/DocumentReference.cruds user/Binary.c patient/Binary.rs", false},
		{"no scope to read Binaries", "", "user/DocumentReference.cruds patient/Patient.rs", false},
	} {
		for _, request := range []struct{ line, body, header string }{
			{"POST DocumentReference", opening, ""},
			{"POST DocumentReference", opening, "If-None-Exist: _id=none"},
			{"PUT DocumentReference/w", opening, ""},
			{"PUT DocumentReference?_id=w", opening, ""},
			{"PUT DocumentReference/other", moving, ""},
			{"PATCH DocumentReference/w", `[{"op":"replace","path":"/content/0/attachment/url","value":"Binary/n"}]`, "Content-Type: application/json-patch+json"},
			{"PATCH DocumentReference/other", `[{"op":"replace","path":"/subject/reference","value":"Patient/a"}]`, "Content-Type: application/json-patch+json"},
			{"POST ", `{"resourceType":"Bundle","type":"batch","entry":[` + sending("POST", "DocumentReference", opening) + `]}`, ""},
			{"POST ", `{"resourceType":"Bundle","type":"transaction","entry":[` + sending("PUT", "DocumentReference/w", opening) + `]}`, ""},
		} {
			g := newGateway(t, append(slices.Clone(records), plain, strings.Replace(plain, `"n"`, `"his"`, 1), note("other", "clinical-note", "Patient/b", "", "Binary/his"),
				note("w", "clinical-note", "Patient/a", "", "https://elsewhere.example/x.pdf"))...)
			if tt.rule != "" {
				g = g.withRules(tt.rule)
			}
			before := g.server.All()
			h := access.Holder{Scope: tt.scope, Patient: "a", User: staff}
			got := g.written(writing{holder: h, request: request.line, body: request.body, header: request.header})
			text, _ := io.ReadAll(got.Body)
			after := g.server.All()
			written := len(after) != len(before) || after["DocumentReference/w"] != before["DocumentReference/w"] || after["DocumentReference/other"] != before["DocumentReference/other"]
			if written == tt.refused && !(tt.rule != "" && strings.Contains(request.line, "?")) {
				t.Errorf("%s: %s: %d, written %v: %.200s", tt.name, request.line, got.StatusCode, written, text)
			}
			for _, id := range []string{"n", "his"} {
				if status := g.get(h, "Binary/"+id).StatusCode; status == 200 && tt.refused {
					t.Errorf("%s: %s: Binary/%s is open", tt.name, request.line, id)
				}
			}
		}
	}
}

// TestReferrerOfBinary checks that documents open Binaries only, whatever types a site judges by their securityContext: only
// the Binaries that they name are checked when they are written.
func TestReferrerOfBinary(t *testing.T) {
	t.Parallel()
	g := newGateway(t, append(slices.Clone(records), `{"resourceType":"Media","id":"m","status":"completed","subject":{"reference":"Patient/b"}}`, note("w", "clinical-note", "Patient/a", "", "Media/m"))...)
	g.Shared = enforce.NewShared(enforce.Shared{"Media": enforce.SharedRule("security_context")})
	if got := g.get(patientA, "Media/m").StatusCode; got != http.StatusNotFound {
		t.Errorf("status %d", got)
	}
}

// TestDeniedContent checks that no request gets anything of a Binary that a rule denies, whichever of its elements the rule
// looks at, and however the FHIR server sends contents.
func TestDeniedContent(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		`resource.meta.security.code == 'VIP'`, `resource.contentType == 'text/plain'`, `resource.data == 'aGVsbG8='`,
	} {
		for _, sends := range []bool{false, true} {
			for _, line := range []string{"", "Range: bytes=0-2", "Accept: text/plain", `If-None-Match: W/"1"`, "Accept: application/fhir+json", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"} {
				for _, target := range []string{"GET Binary/n", "HEAD Binary/n", "GET Binary/n/_history/1", "GET Binary/n?_format=text/plain", "GET Binary/n?_elements=id", "GET Binary/n/_history"} {
					for _, h := range []access.Holder{reader, patientA} {
						g := newGateway(t, label(plain), note("d", "clinical-note", "Patient/a", "", "Binary/n")).withRules("deny resource.resourceType == 'Binary' && " + rule)
						g.server.SendsContent = sends
						got := g.written(writing{holder: h, request: target, header: "Content-Type: \n" + line})
						if got.StatusCode < 400 {
							t.Errorf("%s: %s %s, sends content %v: %d", rule, target, line, sends, got.StatusCode)
						}
					}
				}
			}
		}
	}
	const outside = `{"resourceType":"Binary","id":"n","contentType":"application/dicom","_data":{"extension":[{"url":"http://hapifhir.io/fhir/StructureDefinition/externalized-binary-hash-sha256","valueString":"cafe"}]}}`
	for rule, want := range map[string]int{`deny resource.data == 'aGVsbG8='`: 404, `deny resource.status == 'x'`: 200} {
		g := newGateway(t).withRules(rule)
		g.next = &longContent{size: 7, etags: [2]string{`W/"1"`, `"cafe"`}, contentType: "application/dicom", status: 200, inline: outside}
		if got := g.get(patientA, "Binary/n").StatusCode; got != want {
			t.Errorf("%s: a content outside of the Binary: %d, want %d", rule, got, want)
		}
	}
}

// TestBinaryInTransaction checks that a transaction opens no Binary that is there by what it seems to write under the same id.
func TestBinaryInTransaction(t *testing.T) {
	t.Parallel()
	own := `{"resourceType":"Binary","id":"n","contentType":"text/plain","securityContext":{"reference":"Patient/a"},"data":"aGVsbG8="}`
	document := func(url string) string {
		return named("urn:uuid:2", "POST", "DocumentReference", note("w", "clinical-note", "Patient/a", "", url))
	}
	for _, url := range []string{"Binary/n", "urn:uuid:1", "https://gateway.example/fhir/R4/Binary/n", fhirtest.Address + "/Binary/n"} {
		for name, entry := range map[string]string{
			"created with the id":     named("urn:uuid:1", "POST", "Binary", own),
			"created with the url":    named("https://gateway.example/fhir/R4/Binary/n", "POST", "Binary", own),
			"created conditionally":   `{"fullUrl":"urn:uuid:1","request":{"method":"POST","url":"Binary","ifNoneExist":"_id=n"},"resource":` + own + `}`,
			"updated":                 named("urn:uuid:1", "PUT", "Binary/n", own),
			"updated by criteria":     named("urn:uuid:1", "PUT", "Binary?_id=n", own),
			"deleted":                 requested("DELETE", "Binary/n"),
			"read":                    `{"fullUrl":"urn:uuid:1","request":{"method":"GET","url":"Binary/n"}}`,
			"patched":                 `{"fullUrl":"urn:uuid:1","request":{"method":"PATCH","url":"Binary/n"},"resource":{"resourceType":"Binary","contentType":"application/json-patch+json","data":"W10="}}`,
			"created by another name": named("urn:uuid:1", "POST", "Observation", newObservation),
		} {
			for _, upsert := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s %v", name, url, upsert), func(t *testing.T) {
					g := newGateway(t, append(slices.Clone(records), plain)...)
					g.Upsert = upsert
					text, _ := io.ReadAll(g.submit(patientA, "transaction", entry, document(url)).Body)
					r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Binary/n", nil)
					if got := g.send(patientA, r).StatusCode; got == 200 {
						t.Errorf("open: %.300s", text)
					}
				})
			}
		}
	}
}
