// Command searchquality measures whether the filter of ValueSet/$expand finds the codes that clinicians mean: it runs lists
// of queries with known wanted codes, and reports the rank of the first wanted code. From e2e:
//
//	go run ./searchquality searchquality/testdata/icd10cm-rules.tsv     every query, and the sums
//	go run ./searchquality -sums LIST                                   only the sums: for a list that must stay unseen
//	go run ./searchquality -misses LIST                                 queries without a wanted code in the first three
//	go run ./searchquality -terms LIST                                  with ICD-10-CM's inclusion terms as designations
//	go run ./searchquality -synonyms FILE LIST                          with synonyms, such as terminology/internal/synonyms/english.txt
//	go run ./searchquality -weights FILE LIST                           with frequencies of codes
//
// A list specifies its terminology in a line "#! NAME":
//
//	icd10cm   ICD-10-CM of April 2026, which is in the public domain, from a PyPI package with the tabular list of
//	          CDC's NCHS: pip download --no-deps -d searchquality/packages simple-icd-10-cm==1.5.0
//	snomed    26,158 terms of SNOMED CT, the Global Patient Set (CC BY 4.0), from HL7's terminology:
//	          npm pack hl7.terminology.r4@7.0.1 --pack-destination node/packages
//	loinc     6,401 names of LOINC, those of FHIR's built-in value set c80-doc-typecodes
//
// Other lines that begin with # are comments. Each other line has four columns, separated by tabs: the query; the wanted
// codes, separated by spaces, where A00* is any selectable code with this prefix; the category, used to group
// the sums; and the source, which the comments explain. A code that does not exist is an error.
//
// Lists with -rules in their names may be used to tune the search and its synonyms. Lists with -shown were written
// separately to measure its quality: when changing the search, look only at their sums.
//
// The response is a page of ten hits, as in a pick list. If it contains none of the wanted codes, the rank is that in the
// complete response; the mean of the reciprocal ranks counts such a query as 0.
//
//	main.go      the flags
//	list.go      parses a list
//	catalogue.go the terminologies: icd10cm.go converts the tabular list (tabular.go) to a CodeSystem, snomed.go unpacks
//	searcher.go  runs queries
//	report.go    output
//	ablation     a command: the contribution of each part of the search
package main
