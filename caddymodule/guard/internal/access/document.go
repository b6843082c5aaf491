package access

import (
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// maxEntries bounds how many entries of a stored Bundle are judged.
const maxEntries = 500

// document is a stored Bundle, which is about a patient if each of its entries is.
type document struct {
	record
	bundle   resource.Resource
	writing  bool // a client writes it: its entries may name no other patient
	own      bool // some entry is the patient's, rather than everybody's
	needed   []interaction.Reference
	included map[interaction.Reference]bool
}

// inDocument judges a document or collection by its entries: each must be the patient's or everybody's and covered by the
// scopes, and one at least the patient's. What has no resource or is a Bundle in turn is neither. A document begins with a Composition that is
// the patient's (R4 documents.html). Bundles of other types are requests and answers, which say more than their
// resources do.
func (c record) inDocument(bundle resource.Resource, writing bool) Verdict {
	d := document{record: c, bundle: bundle, writing: writing, included: map[interaction.Reference]bool{}}
	if kind := d.kind(); kind != "document" && kind != "collection" {
		return outside
	}
	n := 0
	for entry := range bundle.Values(resource.Path{Elements: []string{"entry"}}) {
		if n++; n > maxEntries || !d.add(entry, n == 1) {
			return outside
		}
	}
	if !d.own {
		return outside
	}
	v := Verdict{Covered: true, By: c.by}
	for _, of := range d.needed {
		if !d.included[of] {
			v.Needed = append(v.Needed, of)
		}
	}
	if len(v.Needed) > maxNeeded {
		return outside
	}
	return v
}

// add judges an entry.
func (d *document) add(entry []byte, first bool) bool {
	text, ok := resource.Field(entry, "resource")
	if !ok || isExchanged(entry) {
		return false
	}
	res, err := d.bundle.Part(text)
	if err != nil || !d.containsOnly(res) || !d.allows(res) {
		return false
	}
	if first && d.kind() == "document" && res.Type != "Composition" {
		return false
	}
	return d.rules.IsEveryones(res.Type) || d.addOwn(entry, res)
}

// addOwn judges an entry that must be the patient's.
func (d *document) addOwn(entry []byte, res resource.Resource) bool {
	here, ok := d.isHere(entry, res)
	if !ok || res.Type == "Bundle" || res.Type == "Patient" && !here || d.writing && !d.namesNobodyElse(res) {
		return false
	}
	v := d.inside(res)
	d.own = d.own || v.Covered && compartment.InPatient(res, d.patient)
	d.needed = append(d.needed, v.Needed...)
	d.included[interaction.Reference{Type: res.Type, ID: res.ID}] = here
	return v.Covered
}

func (d *document) kind() string {
	kind, _ := d.bundle.Member("type")
	return resource.Text(kind)
}

// isExchanged reports whether an entry is part of a request or an answer.
func isExchanged(entry []byte) bool {
	for _, name := range []string{"search", "request", "response"} {
		if _, ok := resource.Field(entry, name); ok {
			return true
		}
	}
	return false
}

// namesNobodyElse reports whether an entry names no other patient where membership is named.
func (d *document) namesNobodyElse(res resource.Resource) bool {
	for id := range compartment.Patients(res) {
		if id != d.patient {
			return false
		}
	}
	return true
}

// isHere reports whether an entry's resource is, by its fullUrl, that of this server with its type and id, of which the
// entry is a copy. It is ok to be none: a URN says that nobody else has it. But one of another server is not, since its
// relative references are to resources of that server, whatever their ids (R4 bundle.html#references).
func (d *document) isHere(entry []byte, res resource.Resource) (here, ok bool) {
	value, given := resource.Field(entry, "fullUrl")
	if !given {
		return res.ID != "", true
	}
	fullURL := resource.Text(value)
	if strings.HasPrefix(fullURL, "urn:") {
		return false, true
	}
	to, ok := d.bundle.ParseReference(fullURL)
	here = ok && to.Base == "" && to.Type == res.Type && to.ID == res.ID
	return here, here
}
