package fhirapp

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	sampled  = "00-" + traceID + "-b7ad6b7169203331-01"
	unlisted = "http://example.org/fhir/ValueSet/unlisted"
)

// tracedGateway starts the example with a shared store and tracing. It returns a channel of exported spans.
func tracedGateway(t *testing.T) (*gateway, <-chan []*trace.Span) {
	t.Helper()
	spans := make(chan []*trace.Span, 1000)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		export := new(collector.ExportTraceServiceRequest)
		if err != nil || proto.Unmarshal(body, export) != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		var sent []*trace.Span
		for _, of := range export.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				sent = append(sent, scope.GetSpans()...)
			}
		}
		spans <- sent
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(receiver.Close)
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL,
		"OTEL_BSP_SCHEDULE_DELAY": "20",
	} {
		t.Setenv(name, value)
	}
	newTestServer(t)
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		switch {
		case strings.Contains(r.URL.Path, "$expand"):
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(r.URL.Path, "/fhir/R4/Observation"):
			_, _ = io.WriteString(w, `{"resourceType":"Observation","id":"secret-observation","subject":{"reference":"Patient/p01"}}`)
		default:
			_, _ = io.WriteString(w, `{"resourceType":"Patient","id":"p01"}`)
		}
	})
	g := exampleGateway(t, backend,
		"fhir {", "fhir {\n\t\tstore test_shared {\n\t\t\tserver "+t.Name()+"\n\t\t\tgateway traced\n\t\t}",
		"\tfhir_authorize\n", "\ttracing\n\tfhir_authorize\n")
	app, err := g.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(*App).startStores(); err != nil {
		t.Fatal(err)
	}
	return g, spans
}

// Each step of a request has a span below the one created by Caddy's tracing. Spans do not identify users or patients.
func TestSpans(t *testing.T) {
	g, spans := tracedGateway(t)
	token := g.Token()
	g.Gateway = g.NewBrowser()
	request := gatewaytest.DemoRequest()
	request.Set("scope", "openid launch/patient patient/*.rs")
	ofPatient := g.TokenForUser("nora", request)
	for _, tt := range []struct{ name, target, token, want string }{
		{"passed on", "/fhir/R4/Patient/p01?_elements=id", token,
			"ask answered read Patient in decide, decide allowed read Patient in handler, verify allowed in handler"},
		{"judged", "/fhir/R4/Observation/secret-observation", ofPatient,
			"ask answered read Observation in judge, decide allowed read Observation in handler, judge allowed read Observation in decide, verify allowed in handler"},
		{"no token", "/fhir/R4/Patient/p01", "", "verify no_token in handler"},
		{"expanded here", "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", token,
			"ask answered operation ValueSet in decide, decide allowed operation ValueSet in handler, expand here operation ValueSet in ask, verify allowed in handler"},
		{"forwarded expansion", "/fhir/R4/ValueSet/$expand?url=" + unlisted, token,
			"ask answered in expand, ask refused operation ValueSet in decide, decide allowed operation ValueSet in handler, expand next operation ValueSet in ask, verify allowed in handler"},
		{"an authorization request", "/oauth2/authorize?" + gatewaytest.DemoRequest().Encode(), "", "store answered in handler"},
	} {
		for len(spans) > 0 {
			<-spans
		}
		gatewaytest.ReadBody(t, g.Get(tt.target, tt.token, "Traceparent", sampled))
		if got := describeSpans(t, spans); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
	for _, name := range []string{"caddy_fhir_endpoint_duration_seconds", "caddy_fhir_store_operation_duration_seconds", "caddy_fhir_expand_next_duration_seconds"} {
		if !g.hasExemplar(name) {
			t.Errorf("%s does not name the trace", name)
		}
	}
}

// hasExemplar reports whether a histogram has an exemplar with the traced request's ID.
func (g *gateway) hasExemplar(name string) bool {
	g.t.Helper()
	families, err := g.Context.GetMetricsRegistry().Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, bucket := range metric.GetHistogram().GetBucket() {
				for _, label := range bucket.GetExemplar().GetLabel() {
					if family.GetName() == name && label.GetName() == "trace_id" && label.GetValue() == traceID {
						return true
					}
				}
			}
		}
	}
	return false
}

// describeSpans describes each span of the traced request: its outcome, interaction, type and parent.
func describeSpans(t *testing.T, spans <-chan []*trace.Span) string {
	t.Helper()
	var of []*trace.Span
	for deadline := time.After(10 * time.Second); ; {
		var sent []*trace.Span
		select {
		case sent = <-spans:
		case <-deadline:
			t.Fatal("the spans of the request do not arrive")
		}
		if of = append(of, sent...); slices.ContainsFunc(sent, func(s *trace.Span) bool { return s.GetName() == "handler" && isTraced(s) }) {
			break // the last span to end
		}
	}
	names := map[string]string{}
	for _, s := range of {
		names[string(s.GetSpanId())] = strings.TrimPrefix(s.GetName(), "fhir.")
	}
	var all []string
	for _, s := range of {
		if !isTraced(s) || s.GetName() == "handler" {
			continue
		}
		checkNoIdentifiers(t, s)
		words := []string{names[string(s.GetSpanId())]}
		for _, key := range []string{"outcome", "interaction", "resource_type"} {
			for _, a := range s.GetAttributes() {
				if a.GetKey() == key {
					words = append(words, a.GetValue().GetStringValue())
				}
			}
		}
		line := strings.Join(words, " ") + " in " + names[string(s.GetParentSpanId())]
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func isTraced(s *trace.Span) bool { return hex.EncodeToString(s.GetTraceId()) == traceID }

// checkNoIdentifiers checks that a span contains no user, client, requested resource or token. It searches for the prefix eyJ
// of JWTs, because random ids may contain shorter words.
func checkNoIdentifiers(t *testing.T, s *trace.Span) {
	t.Helper()
	text := prototext.Format(s)
	for _, word := range []string{"alice", "nora", "demo-app", "p01", "secret", "example.org", "eyJ", "administrative-gender", "_elements"} {
		if strings.Contains(text, word) {
			t.Errorf("%q in %s", word, text)
		}
	}
}
