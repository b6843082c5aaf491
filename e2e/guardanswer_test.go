package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// responseText returns the headers and body of a response as text.
func responseText(a httpResponse) string {
	var text strings.Builder
	_ = a.header.Write(&text)
	return text.String() + "\n" + string(a.body)
}

// excerptAround returns the part of the text around a word.
func excerptAround(text, word string) string {
	at := strings.Index(text, word)
	return text[max(0, at-300):min(len(text), at+300)]
}

// resourcesIn returns the resources in a response as Type/id, including those in nested Bundles.
func resourcesIn(body []byte) []string {
	var r struct {
		ResourceType, ID string
		Type             string
		Entry            []struct{ Resource json.RawMessage }
		Parameter        []struct{ Resource json.RawMessage }
	}
	if json.Unmarshal(body, &r) != nil || r.ResourceType == "" || r.ResourceType == "OperationOutcome" || r.ResourceType == "CapabilityStatement" {
		return nil
	}
	var found []string
	if r.ID != "" && (r.ResourceType != "Bundle" || r.Type == "document") { // other types of Bundles are responses, not resources
		found = append(found, r.ResourceType+"/"+r.ID)
	}
	if r.Type != "document" {
		for _, e := range r.Entry {
			found = append(found, resourcesIn(e.Resource)...)
		}
	}
	for _, p := range r.Parameter {
		found = append(found, resourcesIn(p.Resource)...)
	}
	return found
}

// withoutResources returns a response without the resources that [resourcesIn] finds.
func withoutResources(body []byte) []byte {
	var members map[string]any
	if json.Unmarshal(body, &members) != nil || members["resourceType"] == "OperationOutcome" {
		return body
	}
	if members["resourceType"] != "Bundle" || members["type"] == "document" {
		return nil
	}
	entries, _ := members["entry"].([]any)
	for _, e := range entries {
		if one, ok := e.(map[string]any); ok {
			delete(one, "resource")
		}
	}
	text, _ := json.Marshal(members)
	return text
}

var (
	sealedPage = regexp.MustCompile(`_page/[A-Za-z0-9_.-]+`)
	bundleID   = regexp.MustCompile(`^(\{"resourceType":"Bundle"),"id":"[^"]+","meta":\{"lastUpdated":"[^"]+"\}|` +
		`^(<Bundle xmlns="http://hl7.org/fhir">)<id value="[^"]+"/><meta><lastUpdated value="[^"]+"/></meta>`)
	// headers that differ between any two responses to equal requests
	passingHeaders = []string{"Date", "Content-Length", "X-Request-Id", "Traceparent"}
)

// comparableText returns a response as text without the victim's token and the parts that differ between any two responses.
func comparableText(a httpResponse, victim string) string {
	header := a.header.Clone()
	for _, name := range passingHeaders {
		header.Del(name)
	}
	if bundleID.Match(a.body) {
		header.Del("Last-Modified") // time when HAPI created the Bundle
	}
	text := responseText(httpResponse{a.status, header, bundleID.ReplaceAll(a.body, []byte("$1$2"))})
	text = sealedPage.ReplaceAllString(text, "_page/x")
	return fmt.Sprint(a.status) + "\n" + guardattack.ReplaceToken(text, victim)
}

// firstDifference returns the first index at which two texts differ.
func firstDifference(a, b string) string {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	from := max(0, at-100)
	return fmt.Sprintf("there: …%.400s\nabsent: …%.400s", a[from:], b[from:])
}
