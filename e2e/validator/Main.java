package validator;

import java.util.Arrays;
import java.util.List;
import org.hl7.fhir.r5.renderers.RendererFactory;
import org.hl7.fhir.utilities.TimeTracker;
import org.hl7.fhir.utilities.http.ManagedWebAccess;
import org.hl7.fhir.validation.ValidationEngine;
import org.hl7.fhir.validation.service.ValidateSourceParameters;
import org.hl7.fhir.validation.service.ValidationService;
import org.hl7.fhir.validation.service.model.InstanceValidatorParameters;
import org.hl7.fhir.validation.service.model.ValidationEngineParameters;

/**
 * What <code>validator_cli.jar -version 4.0.1 -tx SERVER -txLog LOG -output ANSWERS FILE...</code> does. Maven Central
 * has the validator, but not its command line. No registry is asked which terminology server knows a code system.
 */
public final class Main {
	private Main() {}

	/** Arguments: the terminology server, its log, the file for the answers, and the files to validate. */
	public static void main(String[] arguments) throws Exception {
		ManagedWebAccess.loadFromFHIRSettings();
		List<String> files = Arrays.asList(arguments).subList(3, arguments.length);
		ValidationEngineParameters engineParameters = new ValidationEngineParameters()
				.setSv("4.0.1").setTxServer(arguments[0]).setTxLog(arguments[1]).setNoEcosystem(true);
		InstanceValidatorParameters parameters = new InstanceValidatorParameters();
		ValidationService service = new ValidationService((RendererFactory) null);
		ValidationEngine engine = service.initializeValidator(engineParameters, parameters, null, new TimeTracker(), files);
		service.validateSources(engine, ValidateSourceParameters.builder()
				.instanceValidatorParameters(parameters).sources(files).output(arguments[2]).build());
	}
}
