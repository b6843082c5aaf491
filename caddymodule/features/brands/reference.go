package brands

import (
	"maps"
	"slices"
	"strings"
)

// members are the resources of a Bundle by what a reference to them may say.
type members map[string]element

// addEntry adds the resource of an entry.
func (m members) addEntry(entry element) {
	resource := entry.member("resource")
	for _, name := range []string{"request", "response", "search"} {
		if e := entry.member(name); e.exists() {
			e.fail("is not for a collection (bdl-2, bdl-3, bdl-4)")
		}
	}
	if !resource.exists() {
		resource.fail("is missing (bdl-5)")
		return
	}
	resource.member("resourceType").oneOf("Organization", "Endpoint")
	m.add(resource.member("id"), kindOf(resource)+"/"+resource.member("id").id(), resource)
	m.addAddress(entry.member("fullUrl"), resource)
}

func (m members) addAddress(address, resource element) {
	if !address.exists() {
		return
	}
	text := address.text()
	if !strings.Contains(text, ":") || strings.Contains(text, "/_history/") {
		address.fail("%.100q must be an absolute URI, and not of one version (bdl-8)", text)
	}
	m.add(address, text, resource)
}

func (m members) add(at element, name string, resource element) {
	if other, taken := m[name]; taken && other.path != resource.path {
		at.fail("%.100q is also that of %s", name, other.path)
	}
	m[name] = resource
}

func kindOf(resource element) string {
	kind, _ := resource.member("resourceType").value.(string)
	return kind
}

// all returns the resources of a type in their order.
func (m members) all(kind string) []element {
	var list []element
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(name, kind+"/") {
			list = append(list, m[name])
		}
	}
	return list
}

// resolve returns the resource that a Reference names, of a type. It must be in the Bundle.
func (m members) resolve(reference element, kind string) (element, bool) {
	text := reference.member("reference").required()
	resource, ok := m[text]
	if text != "" && (!ok || kindOf(resource) != kind) {
		reference.fail("%.100q is no %s of this Bundle", text, kind)
		return element{}, false
	}
	return resource, ok
}
