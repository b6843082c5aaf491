package enforce_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// hook is the channel of a Subscription that sends resources to an app.
const hook = `"type":"rest-hook","endpoint":"https://app.example/hook","payload":"application/fhir+json"`

// subscribing is a Subscription.
func subscribing(criteria, channel, more string) string {
	return fmt.Sprintf(`{"resourceType":"Subscription","status":"requested","reason":"r","criteria":%q,"channel":{%s}%s}`, criteria, channel, more)
}

// observing is one for a search.
func observing(criteria string) string { return subscribing(criteria, hook, "") }

// ofBackport is one of the Subscriptions R5 Backport.
func ofBackport(criteria, filter, content string) string {
	const at = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-"
	more := ""
	if filter != "" {
		more = fmt.Sprintf(`,"_criteria":{"extension":[{"url":%q,"valueString":%q}]}`, at+"filter-criteria", filter)
	}
	channel := hook + fmt.Sprintf(`,"_payload":{"extension":[{"url":%q,"valueCode":%q}]}`, at+"payload-content", content)
	return subscribing(criteria, channel, more)
}

// holders of scopes for Subscriptions.
var (
	observer  = access.Holder{Scope: "user/Subscription.cruds user/Observation.rs", User: clinician.User}
	ofLabs    = access.Holder{Scope: "system/Subscription.cruds system/Observation.rs?category=http://c|laboratory"}
	ofOwn     = access.Holder{Scope: "user/Subscription.cruds patient/Observation.rs", Patient: "a", User: clinician.User}
	ofOwnLabs = access.Holder{Scope: "user/Subscription.cruds patient/Observation.rs?category=http://c|laboratory", Patient: "a", User: clinician.User}
	ofAll     = access.Holder{Scope: "system/Subscription.cruds system/*.rs"}
	ofEvery   = access.Holder{Scope: "system/*.cruds"}
	searching = access.Holder{Scope: "system/Subscription.cruds system/*.s"}
)

func TestSubscription(t *testing.T) {
	t.Parallel()
	const topic = "http://example.org/topic"
	extension := func(url string) string { return `,"extension":[{"url":"` + url + `","valueString":"Patient?"}]` }
	for _, tt := range []struct {
		name   string
		holder access.Holder
		body   string
		status int
	}{
		{"of what may be read", observer, observing("Observation?"), 201},
		{"the type alone", observer, observing("Observation"), 201},
		{"by parameters of the type", observer, observing("Observation?code=http://loinc.org|1975-2&status=final"), 201},
		{"of another type", observer, observing("Patient?"), 403},
		{"without any scope to read", access.Holder{Scope: "system/Subscription.c"}, observing("Patient?"), 403},
		{"read and searched by two scopes", access.Holder{Scope: "system/Subscription.c system/Observation.r system/Observation.s"}, observing("Observation?"), 201},
		{"searched, not read", access.Holder{Scope: "system/Subscription.c system/Observation.s"}, observing("Observation?"), 403},
		{"read, not searched", access.Holder{Scope: "system/Subscription.c system/Observation.r"}, observing("Observation?"), 403},
		{"everything searched, not read", searching, observing("Patient?"), 403},
		{"a chain", observer, observing("Observation?subject:Patient.name=Adams"), 403},
		{"a reversed chain", observer, observing("Observation?_has:Provenance:target:agent=Practitioner/p"), 403},
		{"what comes along", observer, observing("Observation?_include=Observation:subject"), 403},
		{"a filter", observer, observing("Observation?_filter=status eq final"), 403},
		{"a parameter of the server's own", observer, observing("Observation?mine=1"), 403},
		{"a type of the server's own", observer, observing("Mine?"), 403},
		{"several types", observer, observing("[Observation,Patient]"), 403},
		{"all types", observer, observing("[*]"), 403},
		{"a list of types", observer, observing("?_type=Observation"), 403},
		{"a compartment", observer, observing("Patient/a/Observation"), 403},
		{"an operation", observer, observing("Observation/$lastn"), 403},
		{"a URL", observer, observing("http://hapi:8080/fhir/Observation?"), 403},
		{"no criteria", observer, `{"resourceType":"Subscription","status":"off","channel":{` + hook + `}}`, 403},
		{"criteria that are no string", observer, `{"resourceType":"Subscription","criteria":["Observation?"],"channel":{` + hook + `}}`, 403},
		{"criteria that escapes hide", observer, strings.Replace(observing("Xatient?"), "X", `\u0050`, 1), 403},
		{"switched off", observer, strings.Replace(observing("Patient?"), "requested", "off", 1), 403},
		{"the constraint among the criteria", ofLabs, observing("Observation?category=http://c|laboratory&status=final"), 201},
		{"no constraint", ofLabs, observing("Observation?status=final"), 403},
		{"more than the constraint", ofLabs, observing("Observation?category=http://c|laboratory,http://c|vital-signs"), 403},
		{"one patient's, whose records the server would not judge", ofOwn, observing("Observation?subject=Patient/a"), 403},
		{"one patient's, with the constraint", ofOwnLabs, observing("Observation?subject=Patient/a&category=http://c|laboratory"), 403},
		{"everything", ofAll, observing("Patient?_has:Observation:subject:code=x"), 201},
		{"a topic", observer, ofBackport(topic, "", "full-resource"), 403},
		{"a topic with a filter", observer, ofBackport(topic, "Observation?status=final", "full-resource"), 403},
		{"a topic of which nothing is sent", observer, ofBackport(topic, "Observation?status=final", "empty"), 403},
		{"a topic, by everything", ofAll, ofBackport(topic, "Patient?", "full-resource"), 201},
		{"a filter beside criteria", observer, ofBackport("Observation?", "Patient?", "full-resource"), 403},
		{"how much is sent", observer, ofBackport("Observation?", "", "id-only"), 201},
		{"an extension that sends more", observer, subscribing("Observation?", hook, extension("http://hapifhir.io/fhir/StructureDefinition/subscription-payload-search-criteria")), 403},
		{"one that must be understood", observer, subscribing("Observation?", hook, strings.Replace(extension("http://x"), "extension", "modifierExtension", 1)), 403},
		{"one of the channel", observer, subscribing("Observation?", hook+extension("http://x"), ""), 403},

		{"a header", observer, subscribing("Observation?", hook+`,"header":["Authorization: Bearer x","X-A:"]`, ""), 201},
		{"two headers in one", observer, subscribing("Observation?", hook+`,"header":["X-A: b\r\nX-B: c"]`, ""), 400},
		{"a header of a request's end", observer, subscribing("Observation?", hook+`,"header":["transfer-encoding: chunked"]`, ""), 400},
		{"another method", observer, subscribing("Observation?", hook+`,"header":["X-HTTP-Method-Override: DELETE"]`, ""), 400},
		{"no header", observer, subscribing("Observation?", hook+`,"header":["X A: b"]`, ""), 400},
		{"by websocket", observer, subscribing("Observation?", `"type":"websocket"`, ""), 201},
		{"by mail", observer, subscribing("Observation?", `"type":"email","endpoint":"mailto:a@example.org"`, ""), 201},
		{"by the server's queue", observer, subscribing("Observation?", `"type":"message","endpoint":"channel:x"`, ""), 403},
		{"by a way of the server's own", observer, subscribing("Observation?", `"type":"mine"`, ""), 403},
		{"no channel", observer, `{"resourceType":"Subscription","criteria":"Observation?"}`, 403},
		{"to a file", observer, subscribing("Observation?", `"type":"rest-hook","endpoint":"file:///etc/x"`, ""), 400},
		{"to a path", observer, subscribing("Observation?", `"type":"rest-hook","endpoint":"/hook"`, ""), 400},
		{"with a password", observer, subscribing("Observation?", `"type":"rest-hook","endpoint":"https://a:b@app.example"`, ""), 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			writing{holder: tt.holder, request: "POST Subscription", body: tt.body, status: tt.status}.check(t)
		})
	}
}

// TestSubscriptionWrites checks that a Subscription is judged as it will be, however it is written.
func TestSubscriptionWrites(t *testing.T) {
	t.Parallel()
	withID := func(text, id string) string { return strings.Replace(text, `{`, `{"id":"`+id+`",`, 1) }
	const jsonType = "Content-Type: application/json-patch+json"
	byPath := `{"resourceType":"Parameters","parameter":[` + change("replace", "Subscription.status", `,{"name":"value","valueCode":"off"}`) + `]}`
	stored := append(slices.Clone(writable), withID(observing("Observation?"), "own"), withID(observing("Patient?"), "wide"))
	for _, tt := range []writing{
		{"update", observer, "PUT Subscription/own", withID(observing("Observation?status=final"), "own"), "", 200, "Subscription/own=status=final"},
		{"update to more", observer, "PUT Subscription/own", withID(observing("Patient?"), "own"), "", 403, ""},
		{"update of a wider one, which stays as wide", observer, "PUT Subscription/wide", withID(observing("Patient?"), "wide"), "", 403, ""},
		{"update of a wider one, which is narrowed", observer, "PUT Subscription/wide", withID(observing("Observation?"), "wide"), "", 200, ""},
		{"update that creates", observer, "PUT Subscription/new", withID(observing("Patient?"), "new"), "", 403, ""},
		{"patch", observer, "PATCH Subscription/own", `[{"op":"replace","path":"/status","value":"off"}]`, jsonType, 200, `Subscription/own="off"`},
		{"patch to more", observer, "PATCH Subscription/own", `[{"op":"replace","path":"/criteria","value":"Patient?"}]`, jsonType, 403, ""},
		{"patch of another endpoint into a wider one", observer, "PATCH Subscription/wide", `[{"op":"replace","path":"/channel/endpoint","value":"https://x.example"}]`, jsonType, 403, ""},
		{"activation of a wider one", observer, "PATCH Subscription/wide", `[{"op":"replace","path":"/status","value":"active"}]`, jsonType, 403, ""},
		{"patch by FHIRPath", observer, "PATCH Subscription/wide", byPath, "", 403, ""},
		{"patch by FHIRPath, by everything", ofEvery, "PATCH Subscription/own", byPath, "", 200, ""},
		{"conditional create", observer, "POST Subscription", observing("Patient?"), "If-None-Exist: status=off", 403, ""},
		{"conditional update", observer, "PUT Subscription?criteria=Observation?", observing("Patient?"), "", 403, ""},
		{"conditional patch", observer, "PATCH Subscription?status=requested&_id=own", `[{"op":"replace","path":"/criteria","value":"Patient?"}]`, jsonType, 403, ""},
		{"deletion", observer, "DELETE Subscription/wide", "", "", 204, ""},
		{"by everything", ofEvery, "POST Subscription", observing("Patient?"), "", 201, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.checkAt(newGateway(t, stored...))
		})
	}
}

// TestSubscriptionInBundle checks entries as well, which pass in one piece where nothing in them needs judging.
func TestSubscriptionInBundle(t *testing.T) {
	t.Parallel()
	reader := access.Holder{Scope: "system/Subscription.cr system/*.s"}
	wide := sending("POST", "Subscription", observing("Patient?"))
	for _, h := range []access.Holder{observer, reader} {
		g := newGateway(t, writable...)
		g.server.Seen = func(r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("%s %s reaches the server", r.Method, r.URL)
			}
		}
		if got := answered(t, g.submit(h, "batch", wide), 1).status(0); got != "403" {
			t.Errorf("%s: %s in a batch", h.Scope, got)
		}
		if got := g.submit(h, "transaction", wide).StatusCode; got != 403 {
			t.Errorf("%s: %d as a transaction", h.Scope, got)
		}
	}
	for _, kind := range []string{"batch", "transaction"} {
		g := newGateway(t, writable...)
		if got := answered(t, g.submit(observer, kind, sending("POST", "Subscription", observing("Observation?"))), 1).status(0); got != "201" {
			t.Errorf("%s in a %s", got, kind)
		}
	}
}

// TestSubscriptionUnderRules checks that nothing is sent where rules judge each resource.
func TestSubscriptionUnderRules(t *testing.T) {
	t.Parallel()
	for _, h := range []access.Holder{observer, ofLabs, ofEvery} {
		tt := writing{name: h.Scope, holder: h, request: "POST Subscription", body: observing("Observation?category=http://c|laboratory"), status: 403}
		tt.checkAt(newGateway(t, writable...).withRules("deny resource.status == 'amended'"))
	}
}

// TestEffects checks what else acts once it is stored.
func TestEffects(t *testing.T) {
	t.Parallel()
	scoped := func(resourceType string) access.Holder {
		return access.Holder{Scope: "user/" + resourceType + ".cruds user/Observation.rs", User: clinician.User}
	}
	task := func(input string) string {
		return `{"resourceType":"Task","status":"requested","input":[{` + input + `}]}`
	}
	asking := func(payload string) string {
		return `{"resourceType":"CommunicationRequest","status":"active","subject":{"reference":"Patient/a"},"payload":[` + payload + `]}`
	}
	for _, tt := range []struct {
		name, resourceType, body string
		status                   int
	}{
		{"a parameter", "SearchParameter", `{"resourceType":"SearchParameter","code":"status","base":["Observation"],"expression":"Observation.subject.resolve().name"}`, 403},
		{"a compartment", "CompartmentDefinition", `{"resourceType":"CompartmentDefinition"}`, 403},
		{"a graph", "GraphDefinition", `{"resourceType":"GraphDefinition"}`, 403},
		{"an operation", "OperationDefinition", `{"resourceType":"OperationDefinition"}`, 403},
		{"a message", "MessageDefinition", `{"resourceType":"MessageDefinition"}`, 403},
		{"an event", "EventDefinition", `{"resourceType":"EventDefinition"}`, 403},
		{"a plan", "PlanDefinition", `{"resourceType":"PlanDefinition"}`, 403},
		{"a task", "Task", task(`"type":{"text":"x"},"valueString":"Is this right? Ask the Patient."`), 201},
		{"a task about a resource", "Task", task(`"valueReference":{"reference":"Observation/a1"}`), 201},
		{"a task that asks for what may be read", "Task", task(`"valueString":"Observation?subject=Patient/a"`), 201},
		{"a task that asks for more", "Task", task(`"valueString":"Condition?subject=Patient/a"`), 403},
		{"a task that asks for more by URL", "Task", task(`"valueUrl":"https://f.example/fhir/Condition?x=y"`), 403},
		{"a task that asks in a compartment", "Task", task(`"valueString":"Patient/b/Condition?code=x"`), 403},
		{"a task that reads", "Task", task(`"valueString":"Patient/b"`), 403},
		{"a task that reads what may be read", "Task", task(`"valueString":"Observation/b1"`), 201},
		{"a task that calls an operation", "Task", task(`"valueString":"Patient/b/$everything"`), 403},
		{"a task that calls an operation by URL", "Task", task(`"valueUrl":"https://f.example/fhir/Patient/b/$everything"`), 403},
		{"a task that asks deep inside", "Task", task(`"extension":[{"url":"http://x","extension":[{"url":"y","valueString":"Condition?"}]}]`), 403},
		{"a request that asks", "CommunicationRequest", asking(`{"extension":[{"url":"http://x","valueString":"Condition?"}]}`), 403},
		{"a request that sends what may be read", "CommunicationRequest", asking(`{"contentReference":{"reference":"Observation/b1"}}`), 201},
		{"a request that sends more", "CommunicationRequest", asking(`{"contentReference":{"reference":"Condition/b1"}}`), 403},
		{"a request that tells", "CommunicationRequest", asking(`{"contentString":"Please call."}`), 201},
		{"a stored message", "Bundle", `{"resourceType":"Bundle","type":"message"}`, 403},
		{"a stored transaction", "Bundle", `{"resourceType":"Bundle","type":"transaction"}`, 403},
		{"a Bundle of no type", "Bundle", `{"resourceType":"Bundle"}`, 403},
		{"a stored document", "Bundle", `{"resourceType":"Bundle","type":"document"}`, 201},
		{"a topic", "Basic", `{"resourceType":"Basic","code":{"coding":[{"code":"\u0053ubscriptionTopic"}]}}`, 403},
		{"another Basic", "Basic", `{"resourceType":"Basic","code":{"text":"x"}}`, 201},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			writing{holder: scoped(tt.resourceType), request: "POST " + tt.resourceType, body: tt.body, status: tt.status}.check(t)
			writing{holder: ofEvery, request: "POST " + tt.resourceType, body: tt.body, status: 201}.check(t)
		})
	}
	ofStatus := access.Holder{Scope: "user/CommunicationRequest.cruds?status=active user/Observation.rs", User: clinician.User}
	writing{holder: ofStatus, request: "POST CommunicationRequest", body: asking(`{"contentReference":{"reference":"Condition/b1"}}`), status: 403}.check(t)
	for payload, status := range map[string]int{
		`{"contentString":"Observation?"}`:                              403,
		`{"contentReference":{"reference":"Observation/a1"}}`:           201,
		`{"contentReference":{"reference":"Observation/b1"}}`:           403,
		`{"contentReference":{"reference":"Observation?status=final"}}`: 412,
	} {
		writing{holder: patientA, request: "POST CommunicationRequest", body: asking(payload), status: status}.check(t)
	}
}

// TestDelivering checks operations by which another's Subscription would send, however a site lists them.
func TestDelivering(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"$events", "$get-ws-binding-token", "$process-message", "$trigger-subscription"} {
		for _, reach := range []operation.Reach{operation.TokenReach, operation.InstanceReach, operation.PatientReach, operation.WholeReach} {
			g := newGateway(t, writable...)
			g.Operations = operation.NewOperations(operation.Operation{Name: name, Reach: reach, Permission: 2})
			at := interaction.Reference{Type: "Subscription", ID: "x"}.String() + "/" + name
			for _, h := range []access.Holder{observer, searching} {
				if got := g.get(h, at).StatusCode; got != 403 {
					t.Errorf("%s by %s, %s: %d", name, reach, h.Scope, got)
				}
			}
			if got := g.get(ofEvery, at).StatusCode; got == 403 {
				t.Errorf("%s by %s is refused to those who may read everything", name, reach)
			}
		}
	}
}
