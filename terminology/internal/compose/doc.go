// Package compose evaluates value sets: [Expander.Codes] lists their codes, and an [Evaluator] with a [Probe] looks for
// one code without an expansion.
//
// # Where things are
//
//	rules.go          which value set and which versions of definitions are meant
//	expander.go       its codes, from the cache or made:
//	  compose.go        compose and its imports; what an include has of its code system, or of all versions of it
//	  conceptfilter.go  filters: by hierarchy, and by property
//	probe.go          one code: which includes have it, without an expansion
//	search.go         the parameter filter, and how much codes are used
//	tree.go           nesting
//
// # Expansion
//
// R4 §4.9.5: the union of the includes without the excludes; an include has the codes of its system, as restricted by
// concept or filter, that are in all its value sets. Codes come in the order of the includes, and within one in that of
// the code system or list, newest version first. In a value set that names several versions, the same code in two versions
// is two codes, each with its version, unless versionsMatch is true or the value set is the difference of two versions:
// then it is one code, from the newest version.
//
// An expansion is complete, or an error that wraps [outcome.ErrIncomplete]:
//
//   - A system or filter needs the code system, in the version named, with content complete, fragment or example. Of the
//     latter two the part that is here is expanded, with the extension valueset-unclosed and the parameter used-fragment
//     or used-example.
//   - Listed concepts need no code system. Codes that a complete one lacks are left out. Without the code system, or that
//     version of it, all codes count: the parameter warning-unknown-system says so, and $validate-code calls them valid,
//     with a warning.
//   - A filter has an operator of R4, or child-of or descendent-leaf of R5 (or, as HL7's convertor writes it into R4, its
//     extension), and a property: concept, code, display, parent, child, or one that the code system declares or a concept
//     has. The concept that a hierarchical filter names must exist. A regex has Go's syntax and must match the whole value.
//   - A concept is abstract by its property notSelectable, and inactive by its property inactive, a status of retired or
//     inactive, or the standards status withdrawn. compose.inactive false leaves inactive ones out. A code whose code
//     system is not here counts as active.
//   - Contained value sets and code systems, by #id or canonical, go before what is loaded. From outside, a contained value
//     set is canonical#id, as is a contained code system without a url. A stored expansion is not used.
//   - Supplements that are named must be here.
//   - A definition with implicit rules other than that convertor's, or with a modifier extension anywhere in it, is not
//     used.
//   - With a lockedDate in compose, code systems without a version count as they were then.
//
// Code systems imply value sets: CodeSystem.valueSet, url?fhir_vs and url?fhir_vs=isa/code.
package compose
