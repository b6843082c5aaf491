// Package compose evaluates value sets: [Expander.Codes] lists their codes, and an [Evaluator] with a [Probe] finds
// a single code without expanding.
//
// # Files
//
//	rules.go          selection of the value set and of the versions of definitions
//	expander.go       cached and new expansions:
//	  compose.go        compose and its imports; the codes of an include in its code system, or in all versions of it
//	  conceptfilter.go  filters: by hierarchy and by property
//	probe.go          finds the includes with a single code, without expanding
//	search.go         the parameter filter, and usage weights
//	tree.go           nesting
//
// # Expansion
//
// R4 §4.9.5: the union of the includes minus the excludes. An include has the codes of its system, restricted by
// concept or filter, that are in all of its value sets. Codes are in the order of the includes, and within an include
// in that of the code system or list, newest version first. If a value set names several versions, the same code in two
// versions is two codes with versions, unless versionsMatch is true or the value set is the difference of two versions.
// In those cases it is one code, from the newest version.
//
// An expansion is either complete, or an error that wraps [outcome.ErrIncomplete]:
//
//   - A system or filter needs the code system in the named version, with content complete, fragment or example. Of a
//     fragment or example, the loaded part is expanded, with the extension valueset-unclosed and the parameter
//     used-fragment or used-example.
//   - Enumerated concepts need no code system. Codes that a complete code system lacks are omitted. If the code system or
//     its version is not loaded, all codes are included, with the parameter warning-unknown-system. $validate-code then
//     reports them as valid with a warning.
//   - Filters support the operators of R4, and child-of and descendent-leaf of R5 (also as the extension of HL7's R4
//     converter). The property is concept, code, display, parent, child, or a property that the code system declares or a
//     concept has. The concept of a hierarchical filter must exist. A regex has Go's syntax and must match entire values.
//   - The property notSelectable makes a concept abstract. The property inactive, a status of retired or inactive, and the
//     standards status withdrawn make it inactive. compose.inactive false excludes inactive codes. Codes of code systems
//     that are not loaded count as active.
//   - Contained value sets and code systems, referenced by #id or canonical, take precedence over loaded ones. Externally, a
//     contained value set has the canonical container#id, as has a contained code system without URL. A stored expansion
//     is ignored.
//   - Named supplements must be loaded.
//   - Definitions with modifier extensions, or with implicit rules other than those of HL7's converter, are rejected.
//   - With a lockedDate in compose, code systems without a version are used as of that date.
//
// Code systems imply the value sets CodeSystem.valueSet, url?fhir_vs and url?fhir_vs=isa/code.
package compose
