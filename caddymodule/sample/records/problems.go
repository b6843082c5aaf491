package records

// drug is a medicine as it is ordered.
type drug struct {
	code
	dosage   string
	perDay   int
	asNeeded bool
}

// problem is something that patients may have. Chance is how likely it is within the years of age.
type problem struct {
	code     code
	icd10    string
	from, to int // years of age at which it begins
	chance   float64
	drug     drug // without a code: none
	tests    []string
	goal     string
}

// lasting are the problems of problem lists.
var lasting = []problem{
	{
		code{snomed, "38341003", "Hypertensive disorder"}, "I10", 42, 70, 0.6,
		drug{code{rxnorm, "314076", "lisinopril 10 MG Oral Tablet"}, "Take one tablet once a day", 1, false},
		[]string{"creatinine", "potassium"}, "Blood pressure below 130/80 mm[Hg]",
	},
	{
		code{snomed, "44054006", "Type 2 diabetes mellitus"}, "E11.9", 45, 68, 0.35,
		drug{code{rxnorm, "861007", "metformin hydrochloride 500 MG Oral Tablet"}, "Take one tablet twice a day with meals", 2, false},
		[]string{"glucose", "hba1c", "creatinine"}, "HbA1c below 7 %",
	},
	{
		code{snomed, "55822004", "Hyperlipidemia"}, "E78.5", 40, 66, 0.5,
		drug{code{rxnorm, "617310", "atorvastatin 20 MG Oral Tablet"}, "Take one tablet in the evening", 1, false},
		[]string{"cholesterol", "hdl", "ldl", "triglycerides"}, "LDL cholesterol below 100 mg/dL",
	},
	{
		code{snomed, "195967001", "Asthma"}, "J45.909", 5, 30, 0.25,
		drug{code{rxnorm, "745679", "200 ACTUAT albuterol 0.09 MG/ACTUAT Metered Dose Inhaler"}, "Inhale two puffs when short of breath", 4, true},
		nil, "No asthma attacks that need unplanned care",
	},
	{
		code{snomed, "40930008", "Hypothyroidism"}, "E03.9", 28, 60, 0.15,
		drug{code{rxnorm, "966222", "levothyroxine sodium 0.075 MG Oral Tablet"}, "Take one tablet each morning before breakfast", 1, false},
		[]string{"tsh"}, "TSH within the reference range",
	},
	{
		code{snomed, "35489007", "Depressive disorder"}, "F32.A", 18, 55, 0.2,
		drug{code{rxnorm, "310385", "fluoxetine 20 MG Oral Capsule"}, "Take one capsule each morning", 1, false},
		nil, "Return to usual daily activities",
	},
	{
		code{snomed, "239873007", "Osteoarthritis of knee"}, "M17.9", 52, 75, 0.4,
		drug{code{rxnorm, "313782", "acetaminophen 325 MG Oral Tablet"}, "Take two tablets when in pain, up to three times a day", 3, true},
		nil, "Walk for 30 minutes a day",
	},
	{
		code{snomed, "235595009", "Gastroesophageal reflux disease"}, "K21.9", 25, 65, 0.2,
		drug{code{rxnorm, "198051", "omeprazole 20 MG Delayed Release Oral Capsule"}, "Take one capsule before breakfast", 1, false},
		nil, "",
	},
	{
		code{snomed, "367498001", "Seasonal allergic rhinitis"}, "J30.2", 6, 35, 0.3,
		drug{code{rxnorm, "311372", "loratadine 10 MG Oral Tablet"}, "Take one tablet a day while there is pollen", 1, true},
		nil, "",
	},
	{
		code{snomed, "49436004", "Atrial fibrillation"}, "I48.91", 64, 78, 0.3,
		drug{code{rxnorm, "855332", "warfarin sodium 5 MG Oral Tablet"}, "Take one tablet once a day", 1, false},
		[]string{"inr"}, "INR between 2 and 3",
	},
}

// passing are the problems of one visit.
var passing = []problem{
	{
		code{snomed, "10509002", "Acute bronchitis"}, "J20.9", 3, 99, 1, drug{}, nil, "",
	},
	{
		code{snomed, "195662009", "Acute viral pharyngitis"}, "J02.9", 2, 99, 1,
		drug{code{rxnorm, "313782", "acetaminophen 325 MG Oral Tablet"}, "Take one tablet when in pain, up to four times a day", 4, true}, nil, "",
	},
	{
		code{snomed, "44465007", "Sprain of ankle"}, "S93.409A", 6, 60, 1,
		drug{code{rxnorm, "310965", "ibuprofen 200 MG Oral Tablet"}, "Take two tablets when in pain, up to three times a day", 3, true}, nil, "",
	},
	{
		code{snomed, "68566005", "Urinary tract infectious disease"}, "N39.0", 16, 99, 1, drug{}, []string{"leukocytes"}, "",
	},
	{
		code{snomed, "65363002", "Otitis media"}, "H66.90", 0, 12, 1,
		drug{code{rxnorm, "308182", "amoxicillin 250 MG Oral Capsule"}, "Take one capsule three times a day for seven days", 3, false}, nil, "",
	},
}

// concerns are what weighs on people's health and is no disease.
var concerns = []problem{
	{code{snomed, "73595000", "Stress"}, "Z73.3", 18, 80, 0.2, drug{}, nil, ""},
	{code{snomed, "733423003", "Food insecurity"}, "Z59.41", 0, 99, 0.1, drug{}, nil, ""},
	{code{snomed, "713458007", "Lack of access to transportation"}, "Z75.3", 18, 99, 0.12, drug{}, nil, ""},
}
