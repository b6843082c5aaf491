// Command searchquality measures whether the filter of ValueSet/$expand finds the codes that a clinician means: it
// runs lists of queries with known wanted codes, and prints the rank of the first wanted code. From e2e:
//
//	go run ./searchquality searchquality/testdata/icd10cm-rules.tsv     every query, and the sums
//	go run ./searchquality -sums LIST                                   only the sums: for a list that must stay unseen
//	go run ./searchquality -misses LIST                                 queries without a wanted code among the first three
//	go run ./searchquality -terms LIST                                  with ICD-10-CM's inclusion terms as designations
//	go run ./searchquality -synonyms FILE LIST                          with synonyms, such as terminology/internal/synonyms/english.txt
//	go run ./searchquality -weights FILE LIST                           with the usage frequency of codes
//
// A list specifies its terminology in a line "#! NAME":
//
//	icd10cm   ICD-10-CM of April 2026, which is in the public domain, from a PyPI package with the tabular list of
//	          CDC's NCHS: pip download --no-deps -d searchquality/packages simple-icd-10-cm==1.5.0
//	snomed    26,158 terms of SNOMED CT, the Global Patient Set (CC BY 4.0), from HL7's terminology:
//	          npm pack hl7.terminology.r4@7.0.1 --pack-destination node/packages
//	loinc     6,401 names of LOINC, those of FHIR's value set c80-doc-typecodes, which is built in
//
// Other lines that begin with # are comments. Each other line has four columns, separated by tabs: the query; the
// wanted codes, separated by spaces, where A00* matches any selectable code with that prefix; the category, by which
// the sums are grouped; and the source, which the comments explain. An unknown code is an error.
//
// Lists with -rules in their names may be used to develop the rules of the search and its synonyms. Lists with -shown
// were written separately, and only measure the quality: developers of the search must look only at their sums.
//
// The response is the page of the first ten concepts, as in a pick list. If it contains no wanted code, the rank is
// determined in the whole response; such a query counts as 0 in the mean reciprocal rank.
//
//	main.go      the flags
//	list.go      parses a list
//	catalogue.go the terminologies: icd10cm.go creates a CodeSystem from the tabular list (tabular.go), snomed.go unpacks
//	searcher.go  runs the queries
//	report.go    the output
//	ablation     a command: the contribution of each part of the search
package main
