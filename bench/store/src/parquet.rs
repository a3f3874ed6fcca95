//! A table as a Parquet file: one row group, dictionary and gzip.

use std::{io::Write, sync::Arc};

use parquet::{
    basic::{Compression, ConvertedType, Repetition, Type as Physical},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    file::{
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::types::{Type, TypePtr},
};

use crate::{
    error::StoreError,
    table::{Column, Table},
};

/// Writes a table as a whole Parquet file.
pub(crate) fn write_parquet(table: &Table, out: impl Write + Send) -> Result<(), StoreError> {
    let fields = table.columns.iter().map(parquet_field).collect::<Result<Vec<_>, StoreError>>()?;
    let schema = Type::group_type_builder("confide").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(Default::default()))
        .set_created_by("confide".to_owned())
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, column) in &table.columns {
        match column {
            Column::Text(values) => {
                let (present, levels) =
                    split_definition_levels(values, |text| ByteArray::from(text.as_str()));
                write_column::<_, ByteArrayType>(&mut group, &present, Some(&levels))?;
            }
            Column::Float(values) => {
                let (present, levels) = split_definition_levels(values, |value| *value);
                write_column::<_, DoubleType>(&mut group, &present, Some(&levels))?;
            }
            Column::Integer(values) => {
                let (present, levels) = split_definition_levels(values, |value| *value);
                write_column::<_, Int64Type>(&mut group, &present, Some(&levels))?;
            }
            Column::Flag(values) => write_column::<_, BoolType>(&mut group, values, None)?,
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn parquet_field((name, column): &(&'static str, Column)) -> Result<TypePtr, StoreError> {
    let (physical, converted, repetition) = match column {
        Column::Text(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8, Repetition::OPTIONAL),
        Column::Float(_) => (Physical::DOUBLE, ConvertedType::NONE, Repetition::OPTIONAL),
        Column::Integer(_) => (Physical::INT64, ConvertedType::NONE, Repetition::OPTIONAL),
        Column::Flag(_) => (Physical::BOOLEAN, ConvertedType::NONE, Repetition::REQUIRED),
    };
    let builder = Type::primitive_type_builder(name, physical);
    Ok(Arc::new(builder.with_converted_type(converted).with_repetition(repetition).build()?))
}

/// The values that are present, and for each line a 1 where it has one and a 0 if it has none.
fn split_definition_levels<T, U>(values: &[Option<T>], of: impl Fn(&T) -> U) -> (Vec<U>, Vec<i16>) {
    let present = values.iter().flatten().map(of).collect();
    (present, values.iter().map(|value| i16::from(value.is_some())).collect())
}

fn write_column<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), StoreError> {
    // One column for each field, in their order.
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, levels, None)?;
        column.close()?;
    }
    Ok(())
}
