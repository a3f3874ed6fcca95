//! TCB info, QE identity and collateral: what is read, and what is refused.

use confide_evidence::{
    ParseError,
    collateral::{COLLATERAL_LENGTH_MAX, Collateral},
    qe_identity::QeIdentity,
    quote::Tee,
    tcb_info::{TcbInfo, TcbStatus},
};

#[test]
fn levels_come_out_highest_first_whatever_order_they_had() {
    let levels = [level(3, "OutOfDate"), level(7, "UpToDate"), level(5, "SWHardeningNeeded")];
    let info = TcbInfo::parse(&sgx(&levels.join(","))).unwrap();
    assert_eq!(info.tee, Tee::Sgx);
    let statuses: Vec<_> = info.tcb_levels.iter().map(|level| level.tcb_status).collect();
    let wanted = [TcbStatus::UpToDate, TcbStatus::SwHardeningNeeded, TcbStatus::OutOfDate];
    assert_eq!(statuses, wanted);
    assert_eq!(info.issue_date, 1_779_235_200);
    assert_eq!(info.fmspc, [0, 0xa0, 0x67, 0x11, 0, 0]);
}

#[test]
fn levels_of_an_enclave_that_do_not_fall_are_refused() {
    let rising = QE.replace("\"isvsvn\":8", "\"isvsvn\":5");
    let error = QeIdentity::parse(&rising).unwrap_err();
    assert!(matches!(error, ParseError::Json { subject: "QE identity", .. }), "{error}");
}

#[test]
fn a_list_of_values_is_no_document() {
    let fields = serde_json::to_string(&["00"; 10]).unwrap();
    for list in [fields.as_str(), "[]", "", " ", "1", "\"\"", "null"] {
        let wanted = "a JSON object";
        let error = Collateral::parse(list.as_bytes()).unwrap_err();
        assert_eq!(error, ParseError::Text { subject: "collateral", wanted });
        assert!(matches!(TcbInfo::parse(list), Err(ParseError::Text { .. })), "{list}");
    }
}

#[test]
fn what_a_message_says_is_quoted_short_and_without_control_characters() {
    let hostile = format!("\u{1b}[2J\r\n{}", "x".repeat(100_000));
    let escaped = serde_json::to_string(&hostile).unwrap();
    let errors = [
        Collateral::parse(format!("{{{escaped}:1}}").as_bytes()).unwrap_err(),
        Collateral::parse(format!("{{\"pck_crl\":[{escaped}]}}").as_bytes()).unwrap_err(),
        TcbInfo::parse(&format!("{{{escaped}:1}}")).unwrap_err(),
        QeIdentity::parse(&format!("{{\"id\":{escaped}}}")).unwrap_err(),
        TcbInfo::parse(&sgx(&level(1, "\\u001b[2J"))).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.len() < 500 && !text.contains(char::is_control), "{text:?}");
    }
}

#[test]
fn every_status_comes_back_as_it_was_spelled() {
    for status in TcbStatus::ALL {
        let text = sgx(&level(1, status.as_str()));
        assert_eq!(TcbInfo::parse(&text).unwrap().tcb_levels[0].tcb_status, status);
    }
}

#[test]
fn an_unknown_status_is_refused_by_name() {
    let error = TcbInfo::parse(&sgx(&level(1, "AlmostUpToDate"))).unwrap_err();
    assert!(matches!(&error, ParseError::Json { subject: "TCB info", .. }));
    assert!(error.to_string().contains("AlmostUpToDate"));
}

#[test]
fn tcb_info_of_another_shape_is_refused() {
    let good = sgx(&level(1, "UpToDate"));
    TcbInfo::parse(&good).unwrap();
    for (from, to) in [
        (r#""version":3"#, r#""version":2"#),
        (r#""tcbType":0"#, r#""tcbType":1"#),
        (r#""id":"SGX""#, r#""id":"TDX""#),
        (r#""id":"SGX""#, r#""id":"SNP""#),
        (r#""id":"SGX""#, r#""id":"SGX","id":"SGX""#),
        (r#""fmspc":"00A067110000""#, r#""fmspc":"00A0671100""#),
        (r#"{"svn":1},"#, ""),
        (r#""svn":1"#, r#""svn":256"#),
        (r#""pcesvn":1"#, r#""pcesvn":-1"#),
        ("2026-05-20T00:00:00Z", "2026-05-20 00:00:00"),
        ("2026-05-20T00:00:00Z", "2026-13-20T00:00:00Z"),
    ] {
        assert!(good.contains(from), "{from}");
        assert!(TcbInfo::parse(&good.replacen(from, to, 1)).is_err(), "{to}");
    }
    assert!(TcbInfo::parse(&format!("{good} x")).is_err());
    let many = vec![level(1, "UpToDate"); 257].join(",");
    assert!(matches!(TcbInfo::parse(&sgx(&many)), Err(ParseError::TooMany { .. })));
}

#[test]
fn a_qe_identity_is_read_and_its_version_checked() {
    let identity = QeIdentity::parse(QE).unwrap();
    assert_eq!((identity.tee, identity.isv_prod_id), (Tee::Sgx, 1));
    assert_eq!(identity.tcb_levels[0].isv_svn(), 8);
    assert_eq!(identity.tcb_levels[1].advisory_ids, ["INTEL-SA-00615"]);
    for (from, to) in [
        (r#""version":2"#, r#""version":3"#),
        (r#""QE""#, r#""QVE""#),
        (r#""isvprodid":1"#, r#""isvprodid":1,"isvprodid":2"#),
        (r#""miscselect":"00000000""#, r#""miscselect":"0""#),
    ] {
        assert!(QeIdentity::parse(&QE.replacen(from, to, 1)).is_err(), "{to}");
    }
}

#[test]
fn an_absent_or_empty_endorsement_is_missing_and_an_unknown_key_is_not_read() {
    let error = Collateral::parse(b"{}").unwrap_err();
    assert!(error.is_missing());
    let error = Collateral::parse(br#"{"pck_crl_issuer_chain":""}"#).unwrap_err();
    assert_eq!(error, ParseError::Missing { subject: "pck_crl_issuer_chain" });
    let error = Collateral::parse(br#"{"pck_crl_issuer_chian":""}"#).unwrap_err();
    assert!(matches!(error, ParseError::Json { subject: "collateral", .. }));
    let error = Collateral::parse(br#"{"pck_crl":"00","pck_crl":"01"}"#).unwrap_err();
    assert!(matches!(error, ParseError::Json { .. }));
    let error = Collateral::parse(&vec![b' '; COLLATERAL_LENGTH_MAX + 1]).unwrap_err();
    assert!(matches!(error, ParseError::TooLong { .. }));
}

fn sgx(levels: &str) -> String {
    const HEAD: &str = concat!(
        r#"{"id":"SGX","version":3,"issueDate":"2026-05-20T00:00:00Z","#,
        r#""nextUpdate":"2026-06-19T00:00:00Z","fmspc":"00A067110000","pceId":"0000","tcbType":0,"#,
        r#""tcbEvaluationDataNumber":19,"tcbLevels":["#,
    );
    format!("{HEAD}{levels}]}}")
}

fn level(svn: u8, status: &str) -> String {
    let components = r#"{"svn":1},"#.repeat(15);
    let last = format!(r#"{{"svn":{svn},"category":"BIOS","type":"x"}}"#);
    let tcb = format!(r#"{{"sgxtcbcomponents":[{components}{last}],"pcesvn":1}}"#);
    format!(r#"{{"tcb":{tcb},"tcbDate":"2026-01-01T00:00:00Z","tcbStatus":"{status}"}}"#)
}

const QE: &str = concat!(
    r#"{"id":"QE","version":2,"issueDate":"2026-05-20T00:00:00Z","#,
    r#""nextUpdate":"2026-06-19T00:00:00Z","tcbEvaluationDataNumber":19,"miscselect":"00000000","#,
    r#""miscselectMask":"FFFFFFFF","attributes":"11000000000000000000000000000000","#,
    r#""attributesMask":"FBFFFFFFFFFFFFFF0000000000000000","#,
    r#""mrsigner":"0707070707070707070707070707070707070707070707070707070707070707","#,
    r#""isvprodid":1,"tcbLevels":[{"tcb":{"isvsvn":8},"tcbDate":"2026-01-01T00:00:00Z","#,
    r#""tcbStatus":"UpToDate"},{"tcb":{"isvsvn":6},"tcbDate":"2025-01-01T00:00:00Z","#,
    r#""tcbStatus":"OutOfDate","advisoryIDs":["INTEL-SA-00615"]}]}"#,
);
