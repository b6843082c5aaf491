package search

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// telling are the parameters that tell of other resources, with the reason.
var telling = map[string]string{
	"_filter":        "it can ask about any resource",
	"_list":          "it tells what a List holds",
	"_query":         "only the FHIR server knows what it asks",
	"_graph":         "only the FHIR server knows what it brings along",
	"_text":          "the order of what it finds tells how common words are in all records",
	"_content":       "the order of what it finds tells how common words are in all records",
	"_score":         "it tells how common words are in all records",
	"_contained":     "a resource inside another one cannot be judged by itself",
	"_containedType": "a resource inside another one cannot be judged by itself",
}

// modifiers are those that compare what is in the resource itself, by kinds of parameters; all kinds have :missing.
var modifiers = map[searchparam.Kind][]string{
	searchparam.String:    {"exact", "contains", "nickname"},
	searchparam.Token:     {"not", "text", "of-type", "above", "below", "in", "not-in"},
	searchparam.URI:       {"above", "below"},
	searchparam.Reference: {"identifier"},
}

// checkPlain refuses what compares more than what is in a resource of the type itself. The modifiers that ask a
// terminology do so of value sets, which are about no patient; but named by an id one could be any resource.
func checkPlain(x *Searches, resourceType, name, modifier, value string) error {
	parameter, ok := x.Parameters.Lookup(resourceType, name)
	switch {
	case !ok:
		return unknown(resourceType, name)
	case name == "_id" && modifier != "":
		// HAPI's server finds nothing by _id:not where no resource has the id, and else all: it tells which ids are taken.
		return message.Forbidden(message.ErrOracle, "_id takes no modifier under these scopes: it would tell which ids there are.")
	case modifier == "", modifier == "missing":
		return nil
	case parameter.Kind == searchparam.Reference && interaction.IsType(modifier):
		return nil
	case name == "_id": // HAPI finds nothing by _id:not of an id that nobody has
		return message.Forbidden(message.ErrOracle, "The modifier :%s of _id is not allowed under these scopes: it may tell which ids there are.", modifier)
	case !slices.Contains(modifiers[parameter.Kind], modifier):
		return message.Forbidden(message.ErrOracle, "The modifier :%s of %s is not allowed under these scopes: it may look at other resources.", modifier, name)
	case (modifier == "in" || modifier == "not-in") && !strings.Contains(value, ":"):
		return message.Forbidden(message.ErrOracle, "The modifier :%s needs the URL of a value set under these scopes.", modifier)
	}
	return nil
}

// unknown refuses a parameter of which only the FHIR server may know what it asks.
func unknown(resourceType, name string) error {
	return message.Invalid(message.ErrSearch, "The search parameter %s is not known here: it is none of FHIR R4's for %s, and this site defines none of that name.",
		strconv.Quote(name), cmp.Or(resourceType, "all types"))
}

// isPlainKey reports whether a key of _sort is about what is in a resource itself.
func isPlainKey(x *Searches, resourceType, name string) bool {
	p, ok := x.Parameters.Lookup(resourceType, name)
	return ok && p.Kind != searchparam.Reference && telling[name] == ""
}

// isPlainOrder reports whether all keys of _sort are about what is in a resource itself.
func isPlainOrder(x *Searches, resourceType, value string) bool {
	for key := range strings.SplitSeq(value, ",") {
		if !isPlainKey(x, resourceType, strings.TrimPrefix(key, "-")) {
			return false
		}
	}
	return true
}

// IsPlain reports whether a search is by the elements of its own type alone.
func (x *Searches) IsPlain(i interaction.Interaction) bool {
	return i.Type != smart.AnyType && !slices.ContainsFunc(i.Parameters, func(p smart.Parameter) bool {
		name, modifier, _ := strings.Cut(p.Name, ":")
		switch {
		case isHarmless[p.Name]:
			return false
		case p.Name == "_sort":
			return !isPlainOrder(x, i.Type, p.Value)
		}
		return telling[name] != "" || checkPlain(x, i.Type, name, modifier, p.Value) != nil
	})
}

// isHarmless are the parameters that say how an answer is to be, and tell of no other type.
var isHarmless = map[string]bool{
	"_count": true, "_summary": true, "_elements": true, "_total": true, "_format": true, "_pretty": true,
}
