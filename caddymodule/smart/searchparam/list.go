package searchparam

import (
	"cmp"
	"slices"
	"strings"
)

// Parameters are those of a resource type that can be judged here, by name, those of all resources included.
func Parameters(resourceType string) (list []Parameter) {
	for k, p := range table() {
		own := k.resourceType == resourceType || k.resourceType == "Resource" || k.resourceType == "DomainResource" && isDomainResource(resourceType)
		if own && p.canMatch() {
			list = append(list, p)
		}
	}
	sortParameters(list)
	return list
}

func sortParameters(list []Parameter) {
	slices.SortFunc(list, func(a, b Parameter) int { return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
}

// canMatch reports whether any value can be compared here.
func (p Parameter) canMatch() bool {
	return len(p.Paths) > 0 && p.Kind != Composite && p.Kind != Special
}
