package records

import (
	"strings"
	"time"
)

// people are the patients: given name, family name, gender and date of birth.
const people = `Nora Ashby female 1948-03-14
Tomas Birchall male 1952-07-30
Elena Calloway female 1957-11-02
Victor Draycott male 1944-01-19
Miriam Elmore female 1961-05-23
Desmond Fenwick male 1965-09-08
Paula Garside female 1969-02-11
Kenji Haruyama male 1973-12-27
Ingrid Lindholm female 1976-08-16
Mateo Ibarra male 1979-04-05
Sofia Jessop female 1982-10-21
Rohan Kulkarni male 1985-06-13
Clara Kirkby female 1988-01-31
Samuel Okonjo male 1990-09-17
Yasmin Haddad female 1992-03-28
Peter Novotny male 1994-07-09
Lucia Marchesi female 1996-12-01
Owen Prescott male 1998-05-15
Amara Nwosu female 2000-08-24
Leo Quillan male 2003-02-06
Hannah Rosewood female 2006-11-12
Daniel Sandry male 2010-04-18
Maya Tillman female 2013-09-03
Felix Tillman male 2016-06-27
Ruby Underhill female 2019-01-22
Jonas Verhoeven male 2021-10-10
Wendy Whitlow female 1954-06-06
Arthur Yardley male 1959-12-15
Greta Zeller female 1971-03-03
Noel Thornbury other 1987-07-19`

// The places where patients live, with their postal codes, which are made up.
var towns = []struct{ city, postalCode string }{
	{"Millbrook", "00101"}, {"Ashford Falls", "00102"}, {"Lakeview", "00103"}, {"Stonebridge", "00104"},
}

var streets = []string{"Orchard Lane", "Mill Street", "Harbor Road", "Elm Avenue", "Station Road", "Chapel Hill"}

// readPeople returns the patients, without ids.
func readPeople() (list []*patient) {
	for line := range strings.Lines(people) {
		columns := strings.Fields(line)
		born, _ := time.Parse(time.DateOnly, columns[3]) // TestPeople sees to it
		list = append(list, &patient{given: columns[0], family: columns[1], gender: columns[2], born: born})
	}
	return list
}
